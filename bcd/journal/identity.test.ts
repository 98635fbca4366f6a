import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  clearJoinKey,
  forgetIdentity,
  type Identity,
  loadIdentity,
  loadJoinKey,
  saveIdentity,
  saveJoinKey,
} from './identity.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'bcd-identity-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const identity: Identity = {
  version: 1,
  nodeId: 'node_01',
  spiffeId: 'spiffe://example.test/site/s/node/n',
  role: 'node',
  privateKeyPem: '-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n',
  certificatePem: '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n',
  trustPem: '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n',
  notAfter: '2026-12-02T00:00:00Z',
  gateways: ['gateway.test:7443'],
};

test('saved for the owner alone, loaded as saved, gone when forgotten', async () => {
  expect(await loadIdentity(directory)).toBeUndefined();
  await saveIdentity(directory, identity);
  expect(statSync(join(directory, 'identity.json')).mode & 0o777).toBe(0o600);
  expect(await loadIdentity(directory)).toEqual(identity);
  await forgetIdentity(directory);
  expect(await loadIdentity(directory)).toBeUndefined();
  await saveJoinKey(directory, identity.privateKeyPem);
  expect(await loadJoinKey(directory)).toBe(identity.privateKeyPem);
  await clearJoinKey(directory);
  expect(await loadJoinKey(directory)).toBeUndefined();
});

test('a file that others may read, or that is damaged, is refused with the reason', async () => {
  await saveIdentity(directory, identity);
  const path = join(directory, 'identity.json');
  chmodSync(path, 0o644);
  await expect(loadIdentity(directory)).rejects.toThrow(/others may read it \(mode 0644\)/);
  chmodSync(path, 0o600);
  writeFileSync(path, '{"version":1');
  await expect(loadIdentity(directory)).rejects.toThrow(/not JSON/);
  writeFileSync(path, JSON.stringify({ ...identity, certificatePem: 'x' }));
  await expect(loadIdentity(directory)).rejects.toThrow(/certificatePem/);
});
