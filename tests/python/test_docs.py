"""The pages lead somewhere: links and anchors exist, and so do all commands and options that they name.

What exists is read from docs/reference/options.md, which is generated from the program's own table of options; a test
of that table holds the two together. So nothing has to be built for these tests.
"""

import ast
import re
import subprocess
import sys
from typing import NamedTuple
from urllib.parse import unquote

import pytest
from running import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
REFERENCE = ROOT / "docs" / "reference" / "options.md"
#: The page that also names what the original tool has and this one has not.
MOVING = ROOT / "docs" / "moving-from-msleaks.md"

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINK = re.compile(r"\[(?:[^\[\]]|!?\[[^\]]*\](?:\([^)]*\))?)*\]\(([^()\s]+)\)")
OPTION = re.compile(r"--?[a-zA-Z][\w-]*")

#: Words of other programs that stand in code by themselves, with the program.
FOREIGN_OPTIONS = {
    "--pipeline-model-parallel-size": "Megatron",
    "--rdzv-id": "torchrun",
    "--tensor-model-parallel-size": "Megatron",
    "-fsanitize": "gcc",
    "--privileged": "docker",
    "--shm-size": "docker",
    "--copies": "python -m venv",
    "-E": "sudo",
    "-wal": "end of a file's name",
    "--msmemscope-output": "the pytest plugin",
    "--install-path": "the installer",
    "--uninstall": "the installer",
    "--upgrade": "the installer",
}
#: Programs that pages put behind `msmemscope`.
PROGRAMS = re.compile(r"(.*/)?(python[\d.]*|bash|torchrun|mpirun|[\w./-]*\.(py|sh)|leaky_training)$")
#: What follows `msmemscope.` or `msleaks.` in code and is no name of the package, with what it is.
NOT_PYTHON = {
    "_internal": "the extension module",
    "bin": "the program inside of a wheel",
    "leakchecker": "of early releases of msLeaks",
}
#: Where a command ends in the shell.
ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "<", "--", "\\", "then", "do", "#"}
NO_COMMAND = "run"


def page_id(page):
    return str(page.relative_to(ROOT))


def text_without_code(page):
    return INLINE_CODE.sub("", FENCE.sub("", page.read_text()))


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    found = {}
    for heading in re.findall(r"^#+ +(.+?) *#*$", FENCE.sub("", page.read_text()), re.MULTILINE):
        shown = LINK.sub(lambda link: link.group(0)[1:].split("](")[0], heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        count = found[slug] = found.get(slug, 0) + 1
        if count > 1:
            found[f"{slug}-{count - 1}"] = 1
    return set(found)


def links(page):
    return [target for target in LINK.findall(text_without_code(page)) if not re.match(r"[a-z]+:", target)]


class Program(NamedTuple):
    """What the program understands."""

    #: Options of each command.
    commands: dict
    #: Options that are followed by a value.
    with_value: set

    @property
    def options(self):
        return set().union(*self.commands.values())


def spellings(text):
    """The option names in the head of an option: `-o, --output <DIR>`."""
    return set(OPTION.findall(re.sub(r"<.*", "", text)))


def read_reference():
    text = REFERENCE.read_text()
    before, commands = text.split("\n## Commands\n")
    groups = {}
    with_value = set()
    for group in re.split(r"^## ", before, flags=re.MULTILINE)[1:]:
        heads = re.findall(r"^- Spellings: `(.*)`$", group, re.MULTILINE)
        groups[group.splitlines()[0]] = set().union(*map(spellings, heads))
        # A value that may be left out never stands in the next argument.
        with_value.update(*(spellings(head) for head in heads if "<" in head and "[=" not in head))
    general = groups["General options"]
    described = {
        name: group for group in re.findall(r"^- Spellings: `(.*)`$", before, re.MULTILINE) for name in spellings(group)
    }
    known = {}
    for section in re.split(r"^### `msmemscope ", commands, flags=re.MULTILINE)[1:]:
        own = re.findall(r"^- `(-[^`]*)`:", section, re.MULTILINE)
        with_value.update(*(spellings(head) for head in own if "<" in head))
        above = re.findall(r"\[`(--[\w-]+)`\]\(#", section.split("\nEvery command")[0])
        names = set().union(general, *map(spellings, own), *(spellings(described[name]) for name in above))
        known[re.match(r"[\w-]+", section).group()] = names
    # In front of a program every option that belongs to no command is understood, and with --compare those of compare.
    known[NO_COMMAND] = known[NO_COMMAND] | set().union(*groups.values()) | known["compare"]
    return Program(known, with_value)


PROGRAM = read_reference()


def not_there():
    """Options of the original tool that the page for its users says are not there."""
    rows = re.findall(r"^\| (.*?) \| \*\*not there\*\*", MOVING.read_text(), re.MULTILINE)
    return {name for row in rows for name in OPTION.findall(" ".join(INLINE_CODE.findall(row)))}


def code_of(page):
    """What a reader might type: lines of blocks and code inside of sentences, in words, each with whether it is output.

    Blocks without a language show what programs print, and commands behind a `$` or at the start of a line.
    """
    text = page.read_text()
    for language, block in FENCE.findall(text):
        if language in ("", "sh", "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                yield re.sub(r"(^|\s)# .*", "", line).split(), not language
    for code in INLINE_CODE.findall(FENCE.sub("", text)):
        yield code.split(), False


def invocations(words, is_output):
    """What stands behind each `msmemscope` in a line of code."""
    if is_output:
        words = words[1:] if words[:1] == ["$"] else words
    for index, word in enumerate(words[:1] if is_output else words):
        if re.fullmatch(r'(["$(]*)([\w./]*/)?(msmemscope|msleaks)', word):
            yield words[index + 1 :]


def problems_of(words):
    """What the program does not understand of a command line."""
    command = None
    is_value = False
    for word in words:
        if word in ENDS:
            break
        if word == "[options]":
            continue
        word = word.strip("[]()\"',;:").rstrip(".")
        if is_value or not word:
            is_value = False
        elif OPTION.match(word):
            name = OPTION.match(word).group()
            if name not in PROGRAM.commands.get(command, PROGRAM.commands[NO_COMMAND]):
                yield f"{name} is no option of {command or 'msmemscope'}"
            is_value = "=" not in word and name in PROGRAM.with_value
        elif command is None and re.match(r"[a-z]", word):
            if word not in PROGRAM.commands and not PROGRAMS.match(word):
                yield f"{word} is neither a command nor a known program"
            command = word if word in PROGRAM.commands else NO_COMMAND


def broken_links(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        goal = (page.parent / unquote(path)).resolve() if path else page
        if not goal.exists():
            yield target
        elif anchor and goal.suffix == ".md" and unquote(anchor) not in anchors(goal):
            yield f"{target} (no such heading)"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page):
    assert not list(broken_links(page))


def test_links_that_lead_nowhere_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b` c\n[1](#a-b-c) [2](#d) [3](gone.md)\n![4](gone.png) [`5`](page.md#e)\n`[6](code)`\n")
    assert [broken.split()[0] for broken in broken_links(page)] == ["#d", "gone.md", "gone.png", "page.md#e"]


def test_the_index_leads_to_every_page():
    index = ROOT / "docs" / "README.md"
    reached = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    assert {page_id(page) for page in PAGES} - {page_id(page) for page in reached | {index} if page.is_file()} == set()
    assert "docs/README.md" in links(ROOT / "README.md")


def test_the_site_has_every_page_that_its_pages_lead_to():
    """As `make docs` demands, which is not part of the tests: mkdocs has to be installed for it."""
    paths = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    site = {ROOT / path for path in paths}
    led_to = {(page.parent / unquote(target.partition("#")[0])).resolve() for page in site for target in links(page)}
    pages = {page for page in led_to if page.suffix == ".md"}
    assert {page_id(page) for page in pages | set(PAGES)} - {page_id(page) for page in site} == set()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_and_options_exist(page):
    allowed = set(FOREIGN_OPTIONS) | PROGRAM.options | (not_there() if page == MOVING else set())
    problems = []
    for words, is_output in code_of(page):
        for arguments in invocations(words, is_output):
            problems += [f"{problem}: {' '.join(words)}" for problem in problems_of(arguments)]
        alone = OPTION.match(words[0]) if words and not is_output else None
        if alone and alone.group() not in allowed:
            problems.append(f"{alone.group()} is no option: {' '.join(words)}")
    assert not problems


@pytest.mark.parametrize("demo", ["demo", "demo-torch"])
def test_commands_that_demos_show_exist(demo):
    """The demos end with commands that their reader types next."""
    shown = re.findall(r'^show "?(.*?)"?$', (ROOT / "scripts" / demo).read_text(), re.MULTILINE)
    commands = [each for line in shown for each in invocations(re.sub(r"\s# .*", "", line).split(), is_output=False)]
    assert len(commands) >= 2
    assert [problem for words in commands for problem in problems_of(words)] == []


def public_names():
    """What the Python package offers, read from its source: importing it would need its extension module."""
    package = ROOT / "python" / "msmemscope"
    source = ast.parse((package / "__init__.py").read_text())
    (names,) = [node.value for node in source.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"]
    modules = {each.parent.name for each in package.glob("[!_]*/__init__.py")}
    return {*ast.literal_eval(names), *modules}


def keys_of_config():
    lines = re.findall(r"^- In Python: (.*)$", REFERENCE.read_text(), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", " ".join(lines)))


def config_keys(code):
    """The keys in calls of config()."""
    calls = re.findall(r"msmemscope\.config\(([^()]*)\)", re.sub(r"\"[^\"\n]*\"", '""', code))
    return {key for call in calls for key in re.findall(r"(\w+)=", call)}


def python_of(page):
    """Blocks of Python, and code inside of sentences."""
    text = page.read_text()
    yield from (block for language, block in FENCE.findall(text) if language == "python")
    yield from INLINE_CODE.findall(FENCE.sub("", text))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_names_of_the_python_package_exist(page):
    code = "\n".join(python_of(page))
    named = set(re.findall(r"(?<![\w/.@])(?:msmemscope|msleaks)\.([A-Za-z_]\w*)", code))
    assert named - public_names() - set(NOT_PYTHON) == set()
    unknown = config_keys(code) - keys_of_config()
    assert unknown - {"levle"} == set()  # shown as a mistake


def test_the_reference_was_understood():
    """Guards against tests that pass because they read nothing."""
    assert {"run", "analyze", "view", "check", "doctor", "env"} <= set(PROGRAM.commands)
    assert {"--json", "--peak", "--quiet", "--analysis"} <= PROGRAM.commands["analyze"]
    assert "--peak" not in PROGRAM.commands["view"]
    assert "-o" in PROGRAM.commands["report"] and "-o" in PROGRAM.with_value
    assert list(problems_of(["analyze", "--leaks"])) == ["--leaks is no option of analyze"]
    assert list(problems_of(["--steps", "2", "--", "python", "--anything"])) == []
    assert list(problems_of(["analyse", "results"])) == ["analyse is neither a command nor a known program"]
    assert "--host-leak-mode" in not_there()
    assert {"output", "output_path", "call_stack"} <= keys_of_config()
    assert config_keys('msmemscope.config(\n output="a=b", level="op")') == {"output", "level"}
    assert {"start", "RecordFunction"} <= public_names()


def test_the_reference_of_the_package_is_what_its_docstrings_say():
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts/python-reference", "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
