/**
 * A client with the types of the API, by paths: `client.GET('/v1/pools/{id}', { params: { path: { id } } })`. For programs
 * in TypeScript that want each field checked; the client of client.ts goes by names of operations and repeats by itself.
 */
import createOpenApiClient, { type Client } from 'openapi-fetch';
import type { paths } from './generated/api.d.ts';

export type TypedClient = Client<paths>;

export function createTypedClient(o: {
  readonly baseUrl: string;
  readonly token: string;
  readonly fetch?: typeof fetch;
}): TypedClient {
  return createOpenApiClient<paths>({
    baseUrl: o.baseUrl.replace(/\/+$/, ''),
    headers: { authorization: `Bearer ${o.token}` },
    ...(o.fetch === undefined ? {} : { fetch: o.fetch as (request: Request) => Promise<Response> }),
  });
}
