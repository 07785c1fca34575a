//! {"ends": ["syntax", "returns"], "sample": "code-prelude-wrap-escape"}
}});globalThis.pwn=1;(async function(){{
