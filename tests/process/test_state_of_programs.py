"""State between programs, in real workers: what a replay answers, what a pause keeps, what no program reaches."""

from __future__ import annotations

import pytest

from codemode import CallContext, CodeModeError, Tool, create_code_mode_tool, create_exec_wait_tools


class Place:
    """Counts what it is asked."""

    def __init__(self):
        self.texts = {}
        self.asked = []

    async def get(self, key):
        self.asked.append(("get", key))
        return self.texts.get(key)

    async def set(self, key, value):
        self.asked.append(("set", key))
        self.texts[key] = value

    async def delete(self, key):
        self.asked.append(("delete", key))
        self.texts.pop(key, None)

    async def keys(self):
        self.asked.append(("keys",))
        return [*self.texts]


def test_programs_leave_values_for_each_other_and_a_failed_one_too():
    mapping = {}
    code_mode = create_code_mode_tool([], {"state": mapping})
    assert "state.get(key)" in code_mode.description
    with pytest.raises(CodeModeError, match="later"):
        code_mode.execute_sync(
            {"js": "await state.set('a', { __proto__: null, n: 1n << 60n }); throw new Error('later')"}
        )
    js = "const a = await state.get('a'); a.n += 1n; await state.set('__proto__', a); return await state.keys();"
    assert code_mode.execute_sync({"js": js}) == ["__proto__", "a"]
    assert mapping == {"a": {"n": 2**60}, "__proto__": {"n": 2**60 + 1}}


def test_without_an_option_there_is_none():
    code_mode = create_code_mode_tool([])
    assert "state" not in code_mode.description
    assert code_mode.execute_sync({"js": "return typeof state"}) == "undefined"


def test_a_replay_answers_from_the_ledger_and_touches_nothing():
    place = Place()
    pay = Tool("pay", execute=lambda _input, _context: "paid", needs_approval=True)
    code_mode = create_code_mode_tool([pay], {"state": lambda _binding: place, "approval": {"mode": "interrupt"}})
    js = """
    const before = await state.get('n') ?? 0;
    await state.set('n', before + 1);
    await tools.pay({});
    return [before, await state.get('n')];
    """
    paused = code_mode.execute_sync({"js": js}, call=CallContext(conversation_id="c"))
    place.texts["n"] = "41"  # another program, meanwhile
    place.asked.clear()
    assert code_mode.resume_sync(paused, {"approved": True}, call=CallContext(conversation_id="c")) == [0, 41]
    assert place.asked == [("get", "n")]


def test_a_large_result_is_whole_for_the_next_program():
    code_mode = create_code_mode_tool([], {"state": {}, "model_output": {"max_model_characters": 1000}})
    rows = code_mode.execute_sync({"js": "return Array.from({ length: 3000 }, (_, id) => ({ id }))"})
    assert 'await state.get("result:1")' in code_mode.to_model_output(rows)["value"]
    js = "const rows = await state.get('result:1'); return rows.filter(({ id }) => id > 2997)"
    assert code_mode.execute_sync({"js": js}) == [{"id": 2998}, {"id": 2999}]


def test_a_program_cannot_change_what_state_is():
    js = """
    const tried = [];
    for (const name of ['get', 'set'])
      try { Object.defineProperty(state, name, { value: 1 }); tried.push(name) } catch { tried.push('no') }
    const key = { toString() { return 'other' } };
    try { state.get(key) } catch (error) { tried.push(error.name) }
    JSON.stringify = () => '["other"]';
    Array.prototype.toJSON = () => ['other'];
    await state.set('own', [1]);
    return [tried, await state.get('own'), await state.get('other') === undefined];
    """
    code_mode = create_code_mode_tool([], {"state": {}})
    assert code_mode.execute_sync({"js": js}) == [["no", "no", "TypeError"], [1], True]


@pytest.mark.parametrize("raised", [OSError("secret path"), KeyError("secret key")], ids=repr)
def test_what_a_place_raises_is_not_for_programs(raised, caplog):
    class Broken(Place):
        async def get(self, key):
            raise raised

    code_mode = create_code_mode_tool([], {"state": lambda _binding: Broken()})
    told = code_mode.execute_sync({"js": "try { await state.get('a') } catch (error) { return String(error) }"})
    assert "secret" not in told
    assert "secret" in caplog.text


def test_programs_of_exec_share_what_their_scope_has():
    kept = {}
    settings = {"state": lambda scope: kept.setdefault(scope, {}), "model_output": {"max_model_characters": 1000}}
    pair = create_exec_wait_tools([], settings=settings)
    assert "state.get(key)" in pair.exec.description
    js = "await state.set('n', (await state.get('n') ?? 0) + 1); return 'x'.repeat(2000)"
    for _ in range(2):
        shown = pair.exec.execute_sync({"code": js}, call=CallContext(conversation_id="a"))
    assert 'state.get("result:1")' in shown["value"]
    assert [sorted(one) for one in kept.values()] == [["n", "result:1"]]
    seen = pair.exec.execute_sync(
        {"code": "return [await state.get('n'), await state.keys()]"}, call=CallContext(conversation_id="a")
    )
    assert seen["value"] == [2, ["n", "result:1"]]
    assert (
        pair.exec.execute_sync({"code": "return await state.keys()"}, call=CallContext(conversation_id="b"))["value"]
        == []
    )
    pair.run_sync(pair.aclose())
