//# fetch and join
interface User { id: number; name: string; team?: string }
interface Order { userId: number; total: number }
const [users, orders] = await Promise.all([
  tools.listUsers({ active: true }) as Promise<User[]>,
  tools.listOrders({ since: "2026-01-01" }) as Promise<Order[]>,
]);
const totals = new Map<number, number>();
for (const order of orders) {
  totals.set(order.userId, (totals.get(order.userId) ?? 0) + order.total);
}
return users
  .filter((user): user is User & { team: string } => !!user.team)
  .map((user) => ({ name: user.name, total: totals.get(user.id)! }))
  .sort((a, b) => b.total - a.total);
//# retry helper
async function retry<T>(fn: () => Promise<T>, times = 3): Promise<T> {
  let last: unknown;
  for (let i = 0; i < times; i++) {
    try {
      return await fn();
    } catch (error: unknown) {
      last = error;
    }
  }
  throw last as Error;
}
const result = await retry<{ ok: boolean }>(() => tools.ping({}));
return result.ok ? "yes" : "no";
//# group by
type Row = Record<string, unknown>;
const groupBy = <K extends string, T extends Row>(rows: T[], key: (row: T) => K): Record<K, T[]> => {
  const groups = {} as Record<K, T[]>;
  for (const row of rows) {
    (groups[key(row)] ??= []).push(row);
  }
  return groups;
};
const rows = (await tools.query({ sql: "select * from t where a < 3 and b > 2" })) as Row[];
return groupBy(rows, (row) => String(row["kind"]));
//# pagination
let cursor: string | undefined = undefined;
const all: Array<{ id: string }> = [];
do {
  const page: { items: { id: string }[]; next?: string } = await tools["list-items"]({ cursor });
  all.push(...page.items);
  cursor = page.next;
} while (cursor !== undefined);
return all.length;
//# discriminated union
type Shape = { kind: "circle"; r: number } | { kind: "square"; side: number };
function area(shape: Shape): number {
  switch (shape.kind) {
    case "circle": return Math.PI * shape.r ** 2;
    case "square": return shape.side * shape.side;
    default: { const never: never = shape; return never; }
  }
}
return ([{ kind: "circle", r: 1 }, { kind: "square", side: 2 }] as Shape[]).map(area);
//# cache class
class Cache<K, V> {
  private readonly entries = new Map<K, V>();
  static readonly limit: number = 10;
  #hits = 0;
  get hits(): number { return this.#hits; }
  get(key: K): V | undefined {
    const value = this.entries.get(key);
    if (value !== undefined) this.#hits++;
    return value;
  }
  set(key: K, value: V): this { this.entries.set(key, value); return this; }
}
const cache = new Cache<string, number>();
return cache.set("a", 1).get("a")!;
//# error narrowing
try {
  await tools.delete({ id: 1 });
} catch (e) {
  if (e instanceof Error && (e as Error & { code?: string }).code === "X") return { error: e.message };
  throw e;
}
return { ok: true };
//# event queue without semicolons
type Task = { id: number, run: () => Promise<void> }
const queue: Task[] = []
const push = (run: () => Promise<void>): number => queue.push({ id: queue.length, run })
push(async () => { await tools.a({}) })
push(async () => { await tools.b({}) })
for (const task of queue) await task.run()
return queue.length
//# reduce with types
const words = (await tools.readFile({ path: "a.txt" }) as string).split(/\s+/);
const counts = words.reduce<Record<string, number>>((acc, word) => {
  acc[word] = (acc[word] ?? 0) + 1;
  return acc;
}, {});
return Object.entries(counts).sort(([, a], [, b]): number => b - a).slice(0, 10);
//# satisfies configuration
const config = {
  retries: 3,
  endpoints: { a: "/a", b: "/b" },
} satisfies { retries: number; endpoints: Record<string, string> };
type Endpoint = keyof typeof config.endpoints;
const paths: Endpoint[] = ["a", "b"];
return paths.map((p) => config.endpoints[p]);
//# generator pipeline
function* take<T>(items: Iterable<T>, n: number): Generator<T, void, undefined> {
  let i = 0;
  for (const item of items) { if (i++ >= n) return; yield item; }
}
return [...take<number>([1, 2, 3], 2)];
//# destructuring with types
const { data: { items = [] as string[], total }, error }: { data: { items?: string[]; total: number }; error?: string } = await tools.search({ q: "x" });
if (error) throw new Error(`failed: ${error!}`);
return items.slice(0, total as number);
//# plain program
const a = await tools.one({ x: 1 });
const b = await tools.two({ y: a.value });
return { a, b };
//# plain with regular expressions
const m = /(\d+)-(?<name>[a-z/]+)\/[^/]/giu.exec(s); const n = a / b / c; return m?.groups?.name;
//# plain with templates
return `a ${b ? `c ${d}` : ""} e ${[1, 2].map((x) => `${x}!`).join("")} ${{ a: 1 }.a}`;
//# plain class
class A { #x = 1; static y = 2; get z() { return this.#x; } static { this.w = 3; } async *g() { yield* []; } }
return new A().z;
//# plain labels
outer: for (let i = 0; i < 3; i++) { for (let j = 0; j < 3; j++) { if (j > i) continue outer; if (i > 1) break outer; } }
//# plain operators
a ??= b; c ||= d; e &&= f; g **= 2; h >>>= 1; i = j ? k : l; m = n ?? (o || p); q = !r; s = ~t; u = (-v) ** 2 || typeof w;
