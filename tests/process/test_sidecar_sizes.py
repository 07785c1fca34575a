"""The sizes of the sidecar: what is over them, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest
from large_texts import READ, TEXT, error, result

from codemode import Tool, create_code_call_tools


def test_a_string_that_is_too_large_is_the_error_of_its_call():
    said = error("tool_error", "return await callTool('of_size', { n: 2001 })", {"max_reference_size": 2000})
    assert said["code"] == "SIDECAR_LIMIT"
    assert said["toolName"] == "of_size"
    assert said["toolInput"] == {"n": 2001}
    assert "2001 bytes" in said["message"]
    assert "maxReferenceSize is 2000" in said["message"]
    assert result("return (await callTool('of_size', { n: 2000 })).length", {"max_reference_size": 2000}) == 2000


def test_the_default_sizes_are_those_that_are_documented():
    mib = 1 << 20
    js = f"const t = await callTool('of_size', {{ n: {mib} }}); await callTool('take', {{ t }}); return t"
    assert len(result(js)) == mib
    assert error("tool_error", f"return await callTool('of_size', {{ n: {mib + 1} }})")["code"] == "SIDECAR_LIMIT"
    eleven = (
        f"let n = 0; for (let i = 0; i < 11; i++) n += (await callTool('of_size', {{ n: {mib} }})).length; return n"
    )
    assert "maxTotalSize is 10485760" in error("tool_error", eleven)["message"]
    assert result(eleven.replace("11", "10")) == 10 * mib
    five = f"const t = await callTool('of_size', {{ n: {mib} }}); for (let i = 0; i < 5; i++) t.toString();"
    assert result(f"{five} return 'done'") == "done"
    said = error("runtime_error", f"{five} return t.toString().length")
    assert (said["name"], "maxResolvedSize (5242880 bytes)" in said["message"]) == ("RangeError", True)
    kinds = "[typeof await callTool('of_size', { n: 1023 }), typeof await callTool('of_size', { n: 1024 })]"
    assert result(f"return {kinds}") == ["string", "object"]


MIB = 1 << 20


@pytest.mark.parametrize(("text", "on"), [("x" * 6 * MIB, {"max_reference_size": 8 * MIB}), ("\0" * MIB, {})])
def test_the_sizes_of_the_sidecar_say_how_large_an_output_may_be(text: str, on: dict[str, Any]):
    sent: list[int] = []
    tools = [Tool("read", execute=lambda _value: [text]), Tool("take", execute=lambda given: sent.append(len(given)))]
    code_call = create_code_call_tools(tools, {"sidecar": {"enabled": True, **on}})
    js = "const [t] = await callTool('read'); await callTool('take', t); return t"
    assert code_call.execute_sync({"script": js})["result"] == text
    assert sent == [len(text)]
    assert code_call.execute_sync({"script": "return (await callTool('read'))[0].slice(0, 3)"})["result"] == text[:3]


def test_a_string_over_the_default_size_is_told_of_by_the_option_that_allows_more():
    said = error("tool_error", f"return await callTool('of_size', {{ n: {5 * MIB} }})")
    assert (said["code"], f"maxReferenceSize is {MIB}" in said["message"]) == ("SIDECAR_LIMIT", True)


def test_a_size_of_outputs_that_was_said_holds():
    settings = {"execution_policy": {"max_tool_output_bytes": 5000}}
    said = error("tool_error", "return await callTool('of_size', { n: 6000 })", settings=settings)
    assert (said["code"], "5000 bytes" in said["message"]) == ("EXECUTION", True)


def test_sizes_count_bytes():
    on = {"extraction_threshold": 4, "max_reference_size": 4, "max_total_size": 8}
    given = {"two": "\u00e9\u00e9", "three": "abc", "four": "\U0001f600", "five": "\u00e9\u00e9a"}
    tools = [Tool(name, execute=lambda _value, *, text=text: text) for name, text in given.items()]
    code_call = create_code_call_tools(tools, {"sidecar": {"enabled": True, **on}})
    kind = "try { return typeof await callTool(name); } catch (e) { return e.code; }"
    js = f"return Promise.all(['two', 'three', 'four', 'five'].map(async (name) => {{ {kind} }}))"
    assert code_call.execute_sync({"script": js})["result"] == ["object", "string", "object", "SIDECAR_LIMIT"]


def test_all_of_an_invocation_counts_whatever_became_of_it():
    on = {"max_total_size": 5000}
    js = """const kinds = [];
    for (let i = 0; i < 4; i++) {
      const { success, error } = await callTool('of_size', { n: 2000 }, { throwOnError: false });
      kinds.push(success ? 'ok' : error.code); }
    return kinds"""
    assert result(js, on) == ["ok", "ok", "SIDECAR_LIMIT", "SIDECAR_LIMIT"]


@pytest.mark.parametrize("times", [6, 10_000])
def test_what_is_put_into_one_value_is_bounded(times: int):
    on = {"max_total_size": 5 * len(TEXT.encode())}
    js = f"{READ} const many = Array({times}).fill(text);"
    said = error("tool_error", f"{js} return await callTool('take', many)", on)
    assert said["code"] == "SIDECAR_LIMIT"
    assert said["toolInput"].keys() == {"bytes"}
    assert "maxTotalSize" in error("runtime_error", f"{js} return many", on)["message"]
    assert result(f"{READ} return [text, text, text, text, text]", on) == [TEXT] * 5


RESOLVING = [
    "text.toString()",
    "text.valueOf()",
    "text.slice(0)",
    "text.concat('')",
    "JSON.stringify(text)",
    "JSON.stringify([text])",
    "text.trimStart()",
]


@pytest.mark.parametrize("resolve", RESOLVING)
def test_the_whole_text_as_an_ordinary_string_counts(resolve: str):
    size = len(TEXT.encode())
    js = f"{READ} for (let i = 0; i < 3; i++) {resolve}; return 'done'"
    assert result(js, {"max_resolved_size": 3 * size + 10}) == "done"
    assert "maxResolvedSize" in error("runtime_error", js, {"max_resolved_size": 3 * size - 1})["message"]


@pytest.mark.parametrize("join", ["text + ''", "`${text}`", "[text].join()", "'a' + text", "text < 'a'"])
def test_joins_count_too(join: str):
    js = f"{READ} for (let i = 0; i < 3; i++) {join}; return 'done'"
    on = {"allow_composites": True, "max_resolved_size": 3 * len(TEXT.encode())}
    assert result(js, on) == "done"
    on = {**on, "max_resolved_size": on["max_resolved_size"] - 1}
    assert "maxResolvedSize" in error("runtime_error", js, on)["message"]


def test_parts_and_passing_on_do_not_count():
    js = f"""{READ} let n = 0;
    for (let i = 0; i < 200; i++) n += text.slice(i, i + 100).length;
    n += text.split('\\n').length + JSON.parse(given.numbers).numbers.length + [...text].length;
    for (let i = 0; i < 5; i++) await callTool('take', {{ text }});
    return n > 0 && text"""
    assert result(js, {"max_resolved_size": 100}) == TEXT


def test_very_many_references_are_refused_by_their_number():
    on = {
        "sidecar": {"enabled": True, "extraction_threshold": 1},
        "vm": {"timeoutMs": 60_000},
        "settings": {"execution_policy": {"max_values": 200_000}},
    }
    code_call = create_code_call_tools({"many": lambda n: ["x"] * n}, on)

    def many(n: int) -> Any:
        return code_call.execute_sync({"script": f"const t = await callTool('many', {{ n: {n} }}); return t.length"})

    assert many(20_000) == {"status": "ok", "result": 20_000}
    said = many(40_000)
    assert (said["status"], said["error"]["code"]) == ("tool_error", "SIDECAR_LIMIT")


@pytest.mark.parametrize("mib", [2, 6])
def test_texts_that_do_not_fit_into_the_engine_end_the_script(mib: int):
    texts = [Tool("many", execute=lambda _value: [one * 1_000_000 for one in "abcdefghi"])]
    policy = {"memory_limit_bytes": mib << 20, "max_tool_output_bytes": 32 << 20}
    code_call = create_code_call_tools(texts, {"sidecar": {"enabled": True}, "settings": {"execution_policy": policy}})
    js = "const many = await callTool('many'); return many.map((text) => text.length)"
    said = code_call.execute_sync({"script": js})
    assert (said["status"], said["error"]["name"]) == ("runtime_error", "InternalError")
    assert "out of memory" in said["error"]["message"]
