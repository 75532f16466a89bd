def _msmemscope_follow():
    """Let the package, if it is there, follow a request from outside. The job notices nothing."""
    import sys

    requests = sys.modules.get("msmemscope._requests")
    if requests is not None:
        requests.follow(int("@REQUEST@"), "@SNAPSHOT@" == "True")


_msmemscope_follow()
del _msmemscope_follow
