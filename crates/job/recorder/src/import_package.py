def _msmemscope_attach():
    """Import the package without touching the job's names or search path for good.

    Errors are told as one line: a traceback in the job's output would be taken for its own.
    """
    import os
    import sys

    place = os.fsdecode(b"@PACKAGE@")
    sys.path.append(place)
    try:
        import msmemscope._attach

        msmemscope._attach.synchronise()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the job goes on
        reason = "%s: %s" % (type(error).__name__, error)  # noqa: UP031 - for any Python
        line = "[msmemscope] the Python half could not be imported, operators are not recorded: " + reason + "\n"
        os.write(2, line.encode())
    finally:
        if place in sys.path:
            sys.path.remove(place)


_msmemscope_attach()
del _msmemscope_attach
