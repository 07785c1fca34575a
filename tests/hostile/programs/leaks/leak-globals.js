//! {"ends": ["returns"], "value": [], "exec": {"value": ["setTimeout"]}}
return Reflect.ownKeys(globalThis).map(String).filter(k => /^(std|os|bjson|print|scriptArgs|gc|process|require|module|Deno|Bun|navigator|performance|crypto|fetch|setTimeout|WebAssembly|Worker|Intl|kernel|outbox|slots)$/.test(k))
