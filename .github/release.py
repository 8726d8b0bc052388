"""Make a checkout ready for release: its metadata and README lead to the repository it is in.

    python .github/release.py

GitHub sets the variables that are read here. PyPI shows the README alone, so that its links and
pictures must lead back to the repository, at the version's tag.
"""

import os
import re
from pathlib import Path

LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|#)([^)]+)\)")


def urls(server: str, repository: str) -> str:
    """The lines of [project.urls] for a repository such as `owner/attnlab`."""
    source = f"{server}/{repository}"
    owner, name = repository.split("/")
    book = f"https://{owner.lower()}.github.io/{name}"
    return (
        f'Homepage = "{source}"\n'
        f'Documentation = "{book}/"\n'
        f'Changelog = "{book}/en/versions.html"\n'
        f'Source = "{source}"\n'
        f'Issues = "{source}/issues"\n'
    )


def absolute(text: str, server: str, repository: str, tag: str) -> str:
    """A README whose links lead to the repository's files at a tag."""

    def of_repository(link: re.Match[str]) -> str:
        kind = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}{server}/{repository}/{kind}/{tag}/{link[2]})"

    return LINK.sub(of_repository, text)


def prepare(project: Path, server: str, repository: str, tag: str) -> None:
    """Write both into a project's directory."""
    settings, readme = project / "pyproject.toml", project / "README.md"
    text = settings.read_text(encoding="utf-8")
    heading = "[project.urls]\n"
    assert text.count(heading) == 1
    settings.write_text(text.replace(heading, heading + urls(server, repository)), encoding="utf-8")
    text = readme.read_text(encoding="utf-8")
    readme.write_text(absolute(text, server, repository, tag), encoding="utf-8")


if __name__ == "__main__":
    prepare(
        Path(),
        os.environ["GITHUB_SERVER_URL"],
        os.environ["GITHUB_REPOSITORY"],
        os.environ["GITHUB_REF_NAME"],
    )
