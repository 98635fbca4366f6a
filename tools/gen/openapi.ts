/** docs/reference/openapi.json: the document that a deployment serves, with the address of an example. */
import { openApiDocument } from '#workers/api/openapi.ts';

export const EXAMPLE_URL = 'https://compute.example.com';

export function openApiText(): string {
  return `${JSON.stringify(openApiDocument(EXAMPLE_URL), null, 2)}\n`;
}
