import { expect, test } from 'vitest';
import { addressRefusal, requireWebhookUrl } from './address.ts';
import { excerptOf } from './transport.ts';

const strict = { allowLoopback: false };
const dev = { allowLoopback: true };

test.each([
  'https://example.com/hook',
  'https://example.com:8443/hook?a=b',
  'https://hooks.example.co.uk./x',
  'https://93.184.216.34/',
  'https://[2606:2800:220:1::1]/',
  'https://münchen.example/',
])('takes %s', (url) => {
  expect(requireWebhookUrl(url, strict).protocol).toBe('https:');
});

test.each([
  'http://example.com/',
  'ftp://example.com/',
  'javascript:alert(1)',
  'https://user:pw@example.com/',
  'https://user@example.com/',
  'https://example.com/#frag',
  'https://example.com:22/',
  'https://example.com:80/',
  'https://localhost/',
  'https://localhost./',
  'https://a.localhost/',
  'https://db.internal/',
  'https://metadata.google.internal/',
  'https://printer.local/',
  'https://intranet/',
  '//example.com/',
  '/ok',
  '',
  'https://',
  'https://example.com\\@10.0.0.1/',
  'https://exa\nmple.com/',
  `https://example.com/${'a'.repeat(2100)}`,
  // Every spelling of an address inside.
  'https://127.0.0.1/',
  'https://127.1/',
  'https://0x7f.1/',
  'https://0177.0.0.1/',
  'https://2130706433/',
  'https://０x7f000001/',
  'https://127.0.0.1./',
  'https://%31%32%37.0.0.1/',
  'https://0/',
  'https://0.0.0.0/',
  'https://10.0.0.5/',
  'https://172.16.0.1/',
  'https://172.31.255.255/',
  'https://192.168.1.1/',
  'https://169.254.169.254/latest/meta-data/',
  'https://100.64.0.1/',
  'https://100.100.100.200/',
  'https://168.63.129.16/',
  'https://192.0.0.192/',
  'https://192.0.2.1/',
  'https://198.18.0.1/',
  'https://224.0.0.1/',
  'https://240.0.0.1/',
  'https://255.255.255.255/',
  'https://[::]/',
  'https://[::1]/',
  'https://[::ffff:10.0.0.5]/',
  'https://[::ffff:a00:5]/',
  'https://[::10.0.0.5]/',
  'https://[::ffff:0:10.0.0.5]/',
  'https://[64:ff9b::10.0.0.5]/',
  'https://[64:ff9b:1::a00:5]/',
  'https://[2002:a00:5::1]/',
  'https://[2001:0:a00:5::1]/',
  'https://[fe80::1]/',
  'https://[fec0::1]/',
  'https://[fd00:ec2::254]/',
  'https://[fc00::1]/',
  'https://[ff02::1]/',
  'https://[2001:db8::1]/',
  'https://[100::1]/',
])('refuses %j and names the field', (url) => {
  expect(() => requireWebhookUrl(url, strict)).toThrow(
    expect.objectContaining({
      code: 'INVALID_REQUEST',
      details: { errors: [expect.objectContaining({ field: 'url' })] },
    }),
  );
});

test('in development loopback is allowed, and nothing else inside', () => {
  for (const url of [
    'http://127.0.0.1:9000/hook',
    'http://localhost:80/',
    'https://[::1]:1234/',
    'http://127.8.8.8/',
  ]) {
    expect(requireWebhookUrl(url, dev).href).toBeTruthy();
  }
  for (const url of ['http://10.0.0.5/', 'https://169.254.169.254/', 'http://example.com/', 'http://user@127.0.0.1/']) {
    expect(() => requireWebhookUrl(url, dev), url).toThrow();
  }
});

test('a resolved address is judged alike', () => {
  expect(addressRefusal('93.184.216.34', strict)).toBeUndefined();
  expect(addressRefusal('::ffff:93.184.216.34', strict)).toBeUndefined();
  for (const bad of ['10.0.0.1', '::ffff:7f00:1', '127.0.0.1', 'fe80::1%eth0', 'nonsense', '']) {
    expect(addressRefusal(bad, strict), bad).toBeDefined();
  }
  expect(addressRefusal('127.0.0.1', dev)).toBeUndefined();
});

test('an excerpt is short, printable and whole', () => {
  expect(excerptOf(new TextEncoder().encode('ok\n\u0000\u001b[31mred\u202e'))).toBe('ok\n\ufffd\ufffd[31mred\ufffd');
  const cut = excerptOf(new TextEncoder().encode(`a${'é'.repeat(2000)}`));
  expect(new TextEncoder().encode(cut).length).toBeLessThanOrEqual(1024);
  expect(cut.endsWith('é')).toBe(true);
  expect(excerptOf(new Uint8Array([0xff, 0xfe, 65]))).toBe('\ufffd\ufffdA');
});
