// What URL, URLSearchParams, TextEncoder and TextDecoder make of cases. The same text runs in Node and in a worker.
const PARTS = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash"];
const partsOf = (url) => PARTS.map((part) => url[part]);
const pairsOf = (parameters) => [...parameters].map(([name, value]) => name + "\u0000" + value);
const judgeUrl = (one) => {
  const said = [];
  let url;
  try {
    url = one.base === null ? new URL(one.input) : new URL(one.input, one.base);
  } catch (error) {
    return [error instanceof TypeError ? "TypeError" : String(error)];
  }
  said.push(partsOf(url), pairsOf(url.searchParams));
  for (const [part, value] of one.set) {
    try {
      url[part] = value;
    } catch (error) {
      said.push(error instanceof TypeError ? "TypeError" : String(error));
    }
    said.push(partsOf(url), pairsOf(url.searchParams));
  }
  for (const [name, ...values] of one.parameters) {
    const answer = url.searchParams[name](...values);
    said.push(answer === undefined ? "nothing" : answer, url.href, url.searchParams.toString(), url.searchParams.size);
  }
  return said;
};
const judgeBytes = (one) => {
  const decoder = new TextDecoder("utf-8", { fatal: one.fatal, ignoreBOM: one.ignoreBOM }), said = [];
  for (let at = 0; at < one.pieces.length; at++) {
    try {
      const text = decoder.decode(new Uint8Array(one.pieces[at]), { stream: at % 3 !== 2 });
      said.push(text, [...new TextEncoder().encode(text)]);
    } catch (error) {
      said.push(error instanceof TypeError ? "TypeError" : String(error));
    }
  }
  try {
    said.push(decoder.decode());
  } catch (error) {
    said.push(error instanceof TypeError ? "TypeError" : String(error));
  }
  return said;
};
const judge = (one) => (one.pieces === undefined ? judgeUrl(one) : judgeBytes(one));
