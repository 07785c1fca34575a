// The few names of FrontMCP's SDK that the plugin's execute tool, enclave service and configuration stand on.
const unchanged = () => (value) => value;
export const Provider = unchanged;
export const Tool = unchanged;
export const ProviderScope = { GLOBAL: "global" };
export class ToolContext {}
export class BaseConfig {
  constructor(all) {
    this.all = all;
  }
  getAll() {
    return this.all;
  }
  get(path) {
    return path.split(".").reduce((value, key) => value?.[key], this.all);
  }
}
