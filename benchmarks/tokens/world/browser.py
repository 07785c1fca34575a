"""A page of the shop's administration in a browser: what is on it is known once it has been read."""

from __future__ import annotations

from typing import Any

from codemode import CodeModeToolError

from .people import LOGINS, seeded

_HOME = "https://admin.acme.example/coupons"
_MENU = ("Orders", "Customers", "Products", "Coupons", "Shipping", "Taxes", "Reports", "Settings", "Log out")


class Browser:
    """One tab: a list of coupons, a form, and the page of the coupon that was made."""

    def __init__(self) -> None:
        self._page, self._filled = "", False

    def functions(self) -> dict[str, Any]:
        return {
            "playwright_browser_navigate": self._navigate,
            "playwright_browser_click": self._click,
            "playwright_browser_fill_form": self._fill,
        }

    async def _navigate(self, given: dict[str, Any]) -> str:
        if given["url"] != _HOME:
            raise CodeModeToolError(f"page.goto: net::ERR_NAME_NOT_RESOLVED at {given['url']}")
        self._page = "list"
        return _shown(f"await page.goto('{_HOME}');", "Coupons", _coupons())

    async def _click(self, given: dict[str, Any]) -> str:
        match (self._page, given["target"]):
            case ("list", "e31"):
                self._page = "form"
                return _shown("await page.getByRole('link', { name: 'New coupon' }).click();", "New coupon", _form())
            case ("form", "e47") if self._filled:
                self._page = "made"
                lines = ['- heading "Coupon WINTER15 is active" [ref=e30]', '- text: "Internal number: CP-88213"']
                return _shown("await page.getByRole('button', { name: 'Create' }).click();", "WINTER15", lines)
            case _:
                raise CodeModeToolError(f"Ref {given['target']} not found in the current page snapshot.")

    async def _fill(self, given: dict[str, Any]) -> str:
        if self._page != "form":
            raise CodeModeToolError("There is no such field in the current page snapshot.")
        self._filled = {one["target"] for one in given["fields"]} == {"e41", "e43", "e45"}
        code = "\n".join(f"await page.getByLabel('{one['name']}').fill('{one['value']}');" for one in given["fields"])
        return f"### Ran Playwright code\n```js\n{code}\n```"


def _shown(code: str, title: str, lines: list[str]) -> str:
    menu = [f'- link "{name}" [ref=e{at}] [cursor=pointer]' for at, name in enumerate(_MENU, 11)]
    snapshot = "\n".join(
        ["- navigation [ref=e10]:", *("  " + one for one in menu), "- main [ref=e29]:", *("  " + one for one in lines)]
    )
    state = f"- Page URL: {_HOME}\n- Page Title: {title}"
    ran = f"### Ran Playwright code\n```js\n{code}\n```"
    return f"{ran}\n### Page state\n{state}\n- Page Snapshot:\n```yaml\n{snapshot}\n```"


def _coupons() -> list[str]:
    numbers, lines = (
        seeded("coupons"),
        ['- heading "Coupons" [ref=e30]', '- link "New coupon" [ref=e31] [cursor=pointer]'],
    )
    for at in range(30):
        name = f"{numbers.choice(['SPRING', 'HELLO', 'AGAIN', 'BLACK', 'SUMMER'])}{numbers.randint(5, 40)}"
        share, used = numbers.randint(5, 40), numbers.randint(0, 900)
        said = f"{name} {share} % by {numbers.choice(LOGINS)} used {used} times Edit"
        lines.append(f'- row "{said}" [ref=e{60 + 2 * at}]')
    return lines


def _form() -> list[str]:
    return [
        '- heading "New coupon" [ref=e30]',
        '- textbox "Code" [ref=e41]',
        '- spinbutton "Percent" [ref=e43]',
        '- textbox "Valid until" [ref=e45]',
        '- button "Create" [ref=e47]',
    ]
