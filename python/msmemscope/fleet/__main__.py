"""``python -m msmemscope.fleet <question> <dataset>``: asks a dataset a question and prints the answer.

``check`` in place of a question reads all of it and prints what is wrong.
"""

from __future__ import annotations

import argparse
import sys
import warnings

from msmemscope.exceptions import MsMemScopeError
from msmemscope.fleet import DatasetWarning, check, query, questions

_CHECK = "check"


def main() -> int:
    """Parses, asks, prints."""
    known = questions()
    about = "\n".join(f"  {question.name:<16} {question.about}" for question in known.values())
    parser = argparse.ArgumentParser(
        prog="python -m msmemscope.fleet",
        description="Asks a dataset of 'msmemscope export --to=parquet' a question.",
        epilog=f"questions:\n{about}\n  {_CHECK:<16} Whether all files are there and whole, to the last byte.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("question", choices=[*known, _CHECK], metavar="question")
    parser.add_argument("dataset")
    parser.add_argument("parameters", nargs="*", metavar="name=number", help="such as time_ns=1763300000000000000")
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb")
    parser.add_argument("--master", help="address of a Spark cluster")
    arguments = parser.parse_args()
    given = {}
    for parameter in arguments.parameters:
        name, _, number = parameter.partition("=")
        try:
            given[name] = int(number)
        except ValueError:
            parser.error(f"{parameter!r} is not name=number")
    # As one line, without the place in our own code that Python would name.
    warnings.showwarning = lambda message, category, *rest: print(f"msmemscope: {message}", file=sys.stderr)
    warnings.simplefilter("always", DatasetWarning)
    try:
        if arguments.question == _CHECK:
            problems = check(arguments.dataset)
            print("\n".join(problems) if problems else "The dataset is whole.")
            return 1 if problems else 0
        answer = query(arguments.question, arguments.dataset, engine=arguments.engine, master=arguments.master, **given)
    except MsMemScopeError as error:
        print(f"msmemscope: {error}", file=sys.stderr)
        return 2
    print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
