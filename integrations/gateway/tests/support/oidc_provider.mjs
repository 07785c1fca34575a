// A resource that needs a sign-in, and oidc-provider beside it: whoever comes is signed in as mia at once.
// Prints its origin, and ends with its standard input.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const found = createRequire(process.argv[2] + "/").resolve("oidc-provider");
const { Provider } = await import(pathToFileURL(found).href);

console.warn = console.info = () => {};
const server = createServer();
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const origin = `http://127.0.0.1:${server.address().port}`;
const resource = `${origin}/mcp`;

const provider = new Provider(origin, {
  scopes: ["openid", "offline_access", "notes"],
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true, allowedPolicy: () => true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => resource,
      useGrantedResource: () => true,
      getResourceServerInfo: () => ({ scope: "notes", audience: resource, accessTokenFormat: "opaque" }),
    },
  },
  clients: [{
    client_id: "machine", client_secret: "hunter2-hunter2-hunter2", redirect_uris: [], response_types: [],
    grant_types: ["client_credentials"],
  }],
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  issueRefreshToken: () => true,
  rotateRefreshToken: true,
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  ttl: { AccessToken: 600, AuthorizationCode: 60, Grant: 600, Interaction: 60, RefreshToken: 600, Session: 600,
    ClientCredentials: 600, IdToken: 600 },
  cookies: { keys: ["a key of a test"] },
});

async function interact(request, response) {
  const { prompt, params, session } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    return provider.interactionFinished(request, response, { login: { accountId: "mia" } });
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope("openid offline_access notes");
  grant.addResourceScope(resource, "notes");
  return provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
}

const answer = (response, status, body, headers = {}) =>
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));

server.on("request", async (request, response) => {
  const path = new URL(request.url, origin).pathname;
  if (path.startsWith("/interaction/")) return interact(request, response);
  if (path === "/.well-known/oauth-protected-resource/mcp") {
    return answer(response, 200, { resource, authorization_servers: [origin], scopes_supported: ["notes"] });
  }
  if (path === "/mcp") {
    const token = (request.headers.authorization ?? "").replace("Bearer ", "");
    const known = token && ((await provider.AccessToken.find(token)) ?? (await provider.ClientCredentials.find(token)));
    if (known && known.aud === resource) return answer(response, 200, { sub: known.accountId ?? known.clientId });
    const where = `${origin}/.well-known/oauth-protected-resource/mcp`;
    return answer(response, 401, {}, { "www-authenticate": `Bearer resource_metadata="${where}"` });
  }
  return provider.callback()(request, response);
});

process.stdin.on("end", () => process.exit(0)).resume();
console.log(origin);
