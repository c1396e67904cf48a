-- what a fact has replaced, and the newest facts of a scope, are found without a walk over the scope

CREATE INDEX fact_replaced ON fact (successor) WHERE successor > 0;
CREATE INDEX fact_newest ON fact (scope);
