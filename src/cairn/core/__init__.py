"""The pure core: values and total functions, and nothing else.

House rules, held by tests and import contracts:

* no input or output, no clock, no ids, no randomness, no logging, no async;
* time comes in as `now` (whole microseconds since 1970, UTC) and is stored as `at`;
* `fold` is the only way to a state, `decide` the only source of actions;
* an expected outcome is a value. Only a broken journal or an illegal event raises.
"""
