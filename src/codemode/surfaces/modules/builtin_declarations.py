"""The modules that every program can import, as TypeScript. Knows no server."""

from __future__ import annotations

DISCOVERY = """\
declare module "@codemode/discovery" {
  type Detail = "name" | "description" | "full";
  interface ServerInfo { serverId: string; serverName: string; capabilities?: string[] }
  /** `leftOut`: tools of its list that cannot be used, and why. */
  interface ServerDescription extends ServerInfo {
    description?: string;
    version?: string;
    leftOut?: string[];
    declaration?: string;
  }
  interface ToolSummary {
    toolName: string;
    exportName: string;
    description?: string;
    annotations?: Record<string, unknown>;
  }
  interface ToolDefinition extends ToolSummary { inputSchema?: any; outputSchema?: any; declaration?: string }
  /** `alsoIn`: other servers that have the very same tool. */
  interface FoundTool extends ToolDefinition { serverId: string; alsoIn?: string[] }
  export const specVersion: string;
  export function listServers(): Promise<ServerInfo[]>;
  /** With `declaration`, the TypeScript of the server's module, unless less than "full" is asked for. */
  export function describeServer(serverId: string, options?: { detail?: Detail }): Promise<ServerDescription>;
  export function listTools(serverId: string, options?: { detail?: Detail }): Promise<ToolDefinition[]>;
  /** With schemas and `declaration`, unless less than "full" is asked for. */
  export function getTool(
    serverId: string,
    toolName: string,
    options?: { detail?: Detail },
  ): Promise<ToolDefinition>;
  export function searchTools(
    query: string,
    options?: { detail?: Detail; serverId?: string; limit?: number },
  ): Promise<{ query: string; results: FoundTool[] }>;
}"""

ERRORS = """\
declare module "@codemode/errors" {
  export class CodemodeError extends Error {
    readonly code: string;
    /** One thing to do about it. */
    readonly hint: string;
    readonly serverId?: string;
    readonly toolName?: string;
  }
  export class SchemaValidationError extends CodemodeError {
    readonly exportName?: string;
    /** A JSON Pointer into the input. */
    readonly path: string;
    readonly expected: string;
    readonly received: string;
    /** An input that fits. */
    readonly example?: any;
  }
  export class ToolNotFoundError extends CodemodeError {}
  export class ServerNotFoundError extends CodemodeError {}
  export class ToolCallError extends CodemodeError {}
  export class AuthenticationError extends ToolCallError {}
  export class SandboxLimitError extends CodemodeError {}
}"""
