"""Settings of the tests that compare the model of the allocator with the real one."""

import os

os.environ.setdefault("STANDIN_UNKNOWN_OPERATORS", "error")
