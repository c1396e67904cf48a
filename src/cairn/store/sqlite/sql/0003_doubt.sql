-- doubt: somebody who drove the run was only frozen when it was claimed from him, and nothing has
-- been written since: what he had begun may still take effect, whoever has died after him
ALTER TABLE run ADD COLUMN doubt INTEGER NOT NULL DEFAULT 0;
