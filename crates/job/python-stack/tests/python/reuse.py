"""Code objects that come and go at the same addresses are told apart."""

import collections
import sys

import probe


def main():
    assert probe.attach() == 0
    wrong = collections.Counter()
    rounds = 3_000
    for number in range(rounds):
        if number == rounds // 2:
            probe.prepare()  # from here on code objects that die are counted
        for kind, file, name in (("file", "<cell %06d>" % number, "run"), ("name", "<cell>", "run%06d" % number)):
            scope = {"probe": probe}
            source = "def %s():\n    return probe.without_lock.probe_capture(16)\nstack = %s()" % (name, name)
            exec(compile(source, file, "exec"), scope)
            found_name, found_file, *_ = probe.frames_of(scope["stack"])[0]
            wrong[kind] += (found_name, found_file) != (name, file)
            del scope
    print("%s: %s of %d wrong" % (sys.version.split()[0], dict(wrong), rounds))
    assert not any(wrong.values()), wrong


main()
