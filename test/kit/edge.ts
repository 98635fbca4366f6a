/** The product's Worker in workerd before a test's database. Starting one takes about a second: one a test file. */
import { type Edge, type EdgeVars, startEdge } from '#cli/dev/edge.ts';
import type { TestDatabase } from './database.ts';

export function testEdge(database: TestDatabase, vars: Omit<EdgeVars, 'DATABASE_URL'>): Promise<Edge> {
  return startEdge({ vars: { ...vars, DATABASE_URL: database.url } as EdgeVars });
}
