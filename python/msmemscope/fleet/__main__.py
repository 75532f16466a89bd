"""``python -m msmemscope.fleet <question> <dataset>``: asks a dataset a question and prints the answer."""

from __future__ import annotations

import argparse
import sys

from msmemscope.exceptions import MsMemScopeError
from msmemscope.fleet import query, questions


def main() -> int:
    """Parses, asks, prints."""
    known = questions()
    about = "\n".join(f"  {question.name:<16} {question.about}" for question in known.values())
    parser = argparse.ArgumentParser(
        prog="python -m msmemscope.fleet",
        description="Asks a dataset of 'msmemscope export --to=parquet' a question.",
        epilog=f"questions:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("question", choices=known, metavar="question")
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
    try:
        answer = query(arguments.question, arguments.dataset, engine=arguments.engine, master=arguments.master, **given)
    except MsMemScopeError as error:
        print(f"msmemscope: {error}", file=sys.stderr)
        return 2
    print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
