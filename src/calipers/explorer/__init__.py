"""A local page on which a run can be changed and its bracket seen to move.

The page is served to this machine only, and every number on it comes from the same code as `calipers measure --json`.
Measurements are made in worker processes, so that one that takes too long can be ended without asking it.

    requests    what a body may say, checked as the command line checks it
    jobs        what a worker computes
    workers     the processes, their limits and how they are ended
    service     which answers are remembered, shared and given up
    drawing     numbers and curves as the page shows them
    guard       who may ask: this machine, this page
    app         the routes
    server      the socket and the end
"""
