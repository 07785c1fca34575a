"""The result of programs that leave it to their last function, as modules of Node.js or with a result of their own."""

from __future__ import annotations

from module_servers import answer

from codemode import create_code_mode_tool, create_exec_wait_tools

MAIN = "async function main() { const n = await tools.stock({ product: 'nut' }); return n; }"
BODIES = (
    f"{MAIN}\nmodule.exports = main;",
    f"{MAIN}\nmodule.exports = {{ main }};",
    f"{MAIN}\nif (require.main === module) {{\n  main();\n}}",
    f"{MAIN}\nexport {{ main }};",
    f"{MAIN}\nexport {{ main as default }};",
    f"{MAIN}\nexport default await main();",
    f"Here:\n```ts\nexport default {MAIN}\n```",
    f"Here:\\n\\n```js\\n{MAIN}\\nmain();\\n```",
    f"{MAIN}\nreturn main;",
    f"{MAIN}\nconst result = await main();",
    f"{MAIN}\nvoid main();",
    f"'use strict';\n{MAIN}",
    "export const main = async () => await tools.stock({ product: 'nut' });",
    "const n = await tools.stock({ product: 'nut' });\nexport default n;",
    "return async () => await tools.stock({ product: 'nut' });",
    "async (_) => await tools.stock({ product: 'nut' })",
    "!async function () { return await tools.stock({ product: 'nut' }); }();",
)
STOCK = "{ return await tools.stock({ product: 'nut' }); }"
DESTRUCTURING = (
    f"async function main({{ tools }}) {STOCK}",
    f"export default async function run({{ tools }}) {STOCK}",
    f"export default async function ({{ tools }}) {STOCK}",
    f"const main = async ({{ tools }}) => {STOCK};\nexport default main;",
    f"const main = async ({{ tools, }}: {{ tools: any }}): Promise<number> => {STOCK};\nmain;",
    f"async function main({{ tools }} = {{}}) {STOCK}",
    f"async ({{ tools }}) => {STOCK}",
    f"return async ({{ tools }}) => {STOCK};",
)
ASSIGNING = "async function main() { await 0; globalThis.__codemode_result__ = 7; return 8; }"
MODULES = {
    f"{ASSIGNING}\nmain();": 7,
    f"{ASSIGNING}\nmain().catch(console.error);": 7,
    f"globalThis.__codemode_result__ = null;\n{ASSIGNING}\nmain();": 7,
    ASSIGNING: 7,
    f"export default {ASSIGNING}": 7,
    f"{ASSIGNING}\nmodule.exports = main;": 7,
    "(async () => { await 0; globalThis.__codemode_result__ = 7; })();": 7,
    "!async function () { return 7; }();": 7,
    "export async function main() { return 7; }": 7,
    "export const run = async () => 7;\nrun();": 7,
    "async function main() { return 7; }\nexport { main };": 7,
    "globalThis.__codemode_result__ = null;\nexport default async () => 8;": None,
    "globalThis.__codemode_result__ = 7;\nexport default async () => 8;": 7,
}


def stock(product: str) -> int:
    return {"nut": 7}[product]


def test_a_program_that_leaves_its_function_to_be_called_gives_its_value():
    tool = create_code_mode_tool([stock])
    for js in BODIES:
        assert tool.execute_sync({"js": js}) == 7, js


def test_a_function_that_destructures_tools_gets_an_object_with_them():
    tool = create_code_mode_tool([stock])
    for js in DESTRUCTURING:
        assert tool.execute_sync({"js": js}) == 7, js
    assert answer("export default async ({ tools }) => typeof tools;")["result"] == "undefined"


def test_an_unused_helper_is_not_called_in_place_of_the_entry_point():
    tool = create_code_mode_tool([stock])
    helper = "const now = () => 1;\n"
    assert tool.execute_sync({"js": helper + MAIN}) == 7
    assert tool.execute_sync({"js": f"{helper}async function main(input) {{ return input.product; }}"}) is None


def test_exec_calls_what_a_program_exports_and_shows_a_function_that_it_returns():
    pair = create_exec_wait_tools([stock])
    for code in [js for js in BODIES if "export" in js or "require" in js]:
        result = pair.exec.execute_sync({"code": code})
        while result["status"] == "waiting":
            result = pair.wait.execute_sync({"runId": result["runId"]})
        assert result.get("value") == 7, code
    assert pair.exec.execute_sync({"code": "return () => 1"})["value"] == "() => 1"


def test_what_a_module_assigns_in_its_last_call_is_its_result():
    for code, result in MODULES.items():
        assert answer(code)["result"] == result, code


def test_a_module_and_a_require_of_its_own_stay_with_a_program():
    tool = create_code_mode_tool([stock])
    js = "const module = {};\nmodule.exports = async () => 1;\nreturn typeof module.exports;"
    assert tool.execute_sync({"js": js}) == "function"
    assert tool.execute_sync({"js": "return [() => 1].length; // module.exports"}) == 1
