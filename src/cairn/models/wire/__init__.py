"""What is said over the wire, through a vendor library that loads on first use.

    clients     a client per event loop, with nothing left to chance: time-outs, headers, no retries
    hardened    the library's model classes, with what they hide undone
    requests    from our request to theirs
    replies     from their reply to ours, or to the fault it hides
    faults      from their exceptions to one class of fault
    exchange    one request, streamed or whole, from end to end

Nothing above imports this room at start-up: loading the vendor libraries takes seconds.
"""
