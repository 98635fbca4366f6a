import { defineConfig } from 'vitest/config';

/**
 * Three projects. `unit` needs nothing but this process. `integration` has one Postgres for the run, started only when
 * one of its files runs. `e2e` starts the whole product and runs by `npm run test:e2e` alone.
 */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          environment: 'node',
          include: [
            '{core,db,services,plugins,reconcilers,bcd,gateway,cli,workers,sdk,proto,tools}/**/*.test.ts',
            'test/{property,gates}/**/*.test.ts',
          ],
          testTimeout: 20_000,
        },
      },
      {
        test: {
          name: 'integration',
          environment: 'node',
          include: ['test/{integration,conformance,workerd}/**/*.test.ts'],
          globalSetup: ['test/kit/global-setup.ts'],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'e2e',
          environment: 'node',
          include: ['test/e2e/**/*.test.ts'],
          testTimeout: 300_000,
          hookTimeout: 300_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
