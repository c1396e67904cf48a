"""A run as a tree on a terminal: run → steps → model attempts and tool calls."""

from __future__ import annotations

from rich.text import Text
from rich.tree import Tree

from cairn.cli.paint import line, styled
from cairn.cli.plain import count, day, money, offset, reasons, span, visible, visible_line
from cairn.cli.shown import deciders, file_line, who
from cairn.core.edits import MARKS
from cairn.core.messages import text_of
from cairn.core.views import (
    Approval,
    CallAttempt,
    CallView,
    Change,
    Edit,
    Fault,
    ModelAttempt,
    Note,
    Question,
    RunView,
    Settlement,
    StepView,
    TaskAttempt,
)
from cairn.core.views.words import asked, charged, tokens
from cairn.core.visible import as_read

CUT = 160
"""Characters of a text that the whole tree shows; one step shows texts whole."""


def run_tree(view: RunView, only: int | None = None, *, past: bool = False) -> Tree:
    """The whole run, or one step of it with every text in full; `past` if it has gone on since."""
    teller = _Teller(view.at, whole=only is not None)
    tree = Tree(_heading(view, past=past), guide_style="dim")
    if only is not None:
        for step in view.steps:
            if step.number == only:
                teller.step(tree, step, view.run)
        return tree
    _figures(tree, view)
    tree.add(line("input", teller.text(text_of(view.created.input))))
    for note in view.notes:
        teller.note(tree, note)
    for step in view.steps:
        teller.step(tree, step, view.run)
    teller.plan(tree, view)
    teller.changes(tree, view.changes)
    _ending(tree, view, teller)
    return tree


def _heading(view: RunView, *, past: bool) -> Text:
    created = view.created
    session = f"session {created.session}" if created.session else ""
    return line(
        Text(visible(view.run), style="bold"),
        f"at event {view.head}" if past else "",
        styled(view.status.value),
        f"{created.agent} for {who(created.principal)}",
        created.kind,
        session,
        f"project {visible(created.project)}" if created.project else "",
        f"fork of {view.parent.run} at event {view.parent.seq}" if view.parent else "",
        "approvals none" if created.approvals == "none" else "",
    )


def _figures(tree: Tree, view: RunView) -> None:
    """When it was, how long it took, and what it used of its limits."""
    totals, limits = view.totals, view.limits
    still = f"{span(totals.waited_us)} of it standing still" if totals.waited_us else ""
    at_work = f"{span(totals.running_us)} of {limits.running_s:,} s at work"
    tree.add(line(day(view.at), f"took {span(totals.elapsed_us)}", still, at_work))
    tree.add(
        line(
            f"{totals.steps} of {limits.steps} steps",
            f"{totals.calls} of {limits.calls} calls",
            f"{totals.usage.tokens:,} of {limits.tokens:,} tokens",
            f"{money(totals.usage.micro_usd)} of {money(limits.micro_usd)}",
        )
    )
    requests = count(totals.requests, "model request")
    tree.add(line(requests, count(totals.attempts, "tool start")))


def _ending(tree: Tree, view: RunView, teller: _Teller) -> None:
    for item in view.pending:
        asked = teller.text(f"{item.tool}({item.detail})" if item.tool else "")
        tree.add(line(f"waits: {item.id}", reasons([item.kind]), asked, style="yellow"))
    end = view.end
    if end is None:
        return
    why = end.message or (f"limit {end.limit}" if end.limit else "")
    error = end.error_class.value if end.error_class is not None else ""
    degraded = f"degraded: {', '.join(view.degraded)}" if view.degraded else ""
    branch = tree.add(
        line(teller.when(view.ended_at), "end", styled(end.status.value), error, why, degraded)
    )
    if view.status.value == "completed" and view.answer:
        branch.add(Text(teller.text(view.answer)))


def _doubt(attempt: CallAttempt) -> str:
    """Why its effect is unknown; that the tool was unsure says no more than that it is."""
    return attempt.doubt.removeprefix("unsure").removeprefix(": ")


class _Teller:
    """Adds branches; times count from the run's start, texts are cut unless `whole`."""

    def __init__(self, begun: int, *, whole: bool) -> None:
        self._begun = begun
        self._whole = whole

    def when(self, at: int) -> Text:
        """A moment of the run."""
        return Text(offset(at - self._begun), style="dim")

    def text(self, text: str) -> str:
        """Somebody's text, safe, and short unless it is asked for whole."""
        return visible(text) if self._whole else visible_line(text, CUT)

    # ------------------------------------------------------------ steps

    def step(self, tree: Tree, step: StepView, run: str) -> None:
        """A step with all below it."""
        kind = f"task {visible(step.name)}" if step.kind == "task" else "turn"
        asked_for = {attempt.purpose for attempt in step.attempts}
        if step.fed:
            kind = f"fed {visible(', '.join(step.fed))}"
        elif step.keeps:
            kind = f"keeping facts of event {step.keeps}"
        elif asked_for and "turn" not in asked_for:  # nobody's turn: what was asked in between
            kind = ", ".join(sorted(asked_for))
        branch = tree.add(
            line(
                self.when(step.at),
                Text(f"step {step.number}", style="bold"),
                kind,
                f"by {visible(step.by)} in its place" if step.by else "",
                styled(step.status),
                span(step.duration_us),
            )
        )
        if step.text:
            branch.add(Text(self.text(step.text)))
        if step.rejection is not None:
            branch.add(line("answer not accepted", self.fault(step.rejection)))
        for attempt in step.attempts:
            self.model(branch, attempt)
        for task in step.tasks:
            self.task(branch, task)
        for call in step.calls:
            self.call(branch, call, run)
        for note in step.notes:
            self.note(branch, note)

    def model(self, tree: Tree, attempt: ModelAttempt) -> None:
        """A model request and what came of it."""
        used = attempt.usage.tokens > 0
        first = f"first token {span(attempt.first_token_us)}" if attempt.first_token_us else ""
        branch = tree.add(
            line(
                self.when(attempt.at),
                f"model {attempt.model}",
                f"attempt {attempt.n}" if attempt.n > 1 else "",
                styled(attempt.fate),
                span(attempt.latency_us) if attempt.ended_at else "",
                first,
                charged(
                    tokens(attempt.usage),
                    money(attempt.usage.micro_usd),
                    measured=attempt.measured,
                )
                if used
                else "",
                attempt.finish if attempt.finish not in {"stop", "tool_calls", ""} else "",
                attempt.request_id,
            )
        )
        if attempt.fate == "open" or self._whole:
            room = attempt.reserved
            branch.add(line(f"reserved {room.tokens:,} tokens, {money(room.micro_usd)}"))
        if attempt.reasoning:
            branch.add(line(f"thinking: {self.text(attempt.reasoning)}", style="dim"))
        if attempt.text:
            branch.add(Text(self.text(attempt.text)))
        if attempt.fault is not None:
            branch.add(self.fault(attempt.fault))
        if attempt.rejection is not None:
            branch.add(line("answer not accepted", self.fault(attempt.rejection)))

    def task(self, tree: Tree, attempt: TaskAttempt) -> None:
        """A run of the deployer's own code."""
        branch = tree.add(
            line(
                self.when(attempt.at),
                f"attempt {attempt.n}",
                styled(attempt.fate),
                span(attempt.duration_us) if attempt.ended_at else "",
                self.text(attempt.output),
            )
        )
        if attempt.fault is not None:
            branch.add(self.fault(attempt.fault))

    # ------------------------------------------------------------ calls

    def call(self, tree: Tree, call: CallView, run: str) -> None:
        """A tool call: verdict, people, attempts, what became of it."""
        branch = tree.add(
            line(
                self.when(call.at),
                f"{call.id} {visible_line(call.tool, 60)}({self.text(as_read(call.arguments))})",
                f"in place of {visible_line(call.name, 60)}" if call.redirects else "",
                styled(call.status.value),
                span(call.duration_us) if call.attempts else "",
            )
        )
        if call.verdict:
            branch.add(line("verdict", styled(call.verdict), f"by {call.rule}"))
        if call.fault is not None:
            branch.add(self.fault(call.fault))
        self._events_of(branch, call, run)
        if call.result:
            branch.add(line("result", self.text(call.result)))
        if call.artifact or call.sources:
            kept = f"whole result in artifact {call.artifact}" if call.artifact else ""
            branch.add(line(kept, count(call.sources, "source") if call.sources else ""))

    def _events_of(self, branch: Tree, call: CallView, run: str) -> None:
        """Approvals, attempts and settlements in the order they happened."""
        parts = [(a.at, self.approval(a, run), self.terms(a)) for a in call.approvals]
        parts += [(e.at, self.edit(e), []) for e in call.edits]
        if call.question is not None:
            parts.append((call.question.at, self.question(call.question, run), []))
        for a in call.attempts:
            parts.append((a.at, self.attempt(a), [self.fault(a.fault)] if a.fault else []))
        parts += [(s.at, self.settlement(s), []) for s in call.settlements]
        for _, shown, more in sorted(parts, key=lambda part: part[0]):
            added = branch.add(shown)
            for each in more:
                added.add(each)

    def question(self, question: Question, run: str) -> Text:
        """What was asked, and who answered; the answer is the call's result."""
        answered = question.answer is not None
        return line(
            self.when(question.at),
            f"question {run}/{question.n}",
            self.text(question.text),
            f"answered by {question.actor or 'somebody'}" if answered else styled("open"),
        )

    def settlement(self, settlement: Settlement) -> Text:
        """Who settled an unknown effect, and how."""
        return line(
            self.when(settlement.at),
            "done by hand"
            if settlement.verdict == "by hand"
            else settlement.verdict.replace("_", " "),
            f"says {settlement.actor or settlement.by}",
            self.text(settlement.evidence),
        )

    def approval(self, approval: Approval, run: str) -> Text:
        """Who decided what, when, and how long that took."""
        decided = approval.decided_at
        waited = f"after {span(decided - approval.at)}" if decided else ""
        return line(
            self.when(approval.at),
            f"approval {run}/{approval.n}",
            styled(approval.decision),
            f"by {approval.actor}" if approval.actor else "",
            f"as {visible_line(', '.join(approval.roles), CUT)}" if approval.roles else "",
            f"until {day(approval.expires_at)}" if approval.decision == "open" else "",
            f"{day(decided)} {waited}" if decided else "",
            self.text(approval.message),
        )

    def terms(self, approval: Approval) -> list[Text]:
        """Why it was asked, who may decide it, and what a yes is bound to."""
        found = [line(f"asked by {approval.rule}", self.text(approval.reason))]
        found.append(line(f"may decide: {deciders(approval.terms)}"))
        found += [line(f"bound to {file_line(file)}") for file in approval.files]
        return found

    def edit(self, edit: Edit) -> Text:
        """Who changed the arguments, and what they were before."""
        return line(
            self.when(edit.at),
            f"edited by {edit.actor or 'somebody'}",
            f"the arguments were {self.text(as_read(edit.before))}",
        )

    def attempt(self, attempt: CallAttempt) -> Text:
        """One start of the tool."""
        return line(
            self.when(attempt.at),
            f"attempt {attempt.n}",
            visible(attempt.tool),
            f"{attempt.effect}, {attempt.recovery}",
            f"by {attempt.rule}",
            styled("running" if attempt.fate == "open" else attempt.fate),
            span(attempt.duration_us) if attempt.ended_at else "",
            money(attempt.micro_usd) if attempt.micro_usd else "",
            self.text(_doubt(attempt)),
        )

    # ------------------------------------------------------------ the rest

    def fault(self, fault: Fault) -> Text:
        """Class, words, and what was done about it."""
        again = f"again at {offset(fault.retry_at - self._begun)}" if fault.retry_at else ""
        return line(
            Text(fault.error_class.value, style="red"),
            f"HTTP {fault.status}" if fault.status else "",
            self.text(fault.message),
            Text(f"→ {fault.disposition}", style="bold"),
            asked(fault.asked_us),
            again,
        )

    def note(self, tree: Tree, note: Note) -> None:
        """Any other event."""
        actor = f"by {note.actor}" if note.actor else ""
        tree.add(line(self.when(note.at), note.name, self.text(note.text), actor))

    def plan(self, tree: Tree, view: RunView) -> None:
        """The plan as it stands at the end."""
        if not view.plan:
            return
        branch = tree.add("plan")
        for item in view.plan:
            steps = f"steps {', '.join(map(str, item.steps))}" if item.steps else ""
            branch.add(line(f"[{MARKS[item.status]}] {self.text(item.text)}", steps))

    def changes(self, tree: Tree, changes: tuple[Change, ...]) -> None:
        """The moves of the status."""
        branch = tree.add("state changes")
        for change in changes:
            branch.add(
                line(
                    self.when(change.at),
                    f"event {change.seq}",
                    styled(change.after.value),
                    reasons(change.waits) if change.after.value == "waiting" else "",
                    change.event,
                    f"by {change.actor}" if change.actor else "",
                )
            )
