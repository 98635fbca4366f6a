/** The two methods that every collection of a tenant has alike: a page of its rows, and the end of one. */
import { z } from 'zod';
import { rows } from '../storage.ts';
import { id, method, only, page } from './method.ts';

export function lister(key: string, action: string, columns: string, table: string) {
  return method(z.strictObject({ tenantId: id, ...page }), async (call, input) => {
    await call.allow({ tenantId: input.tenantId, action, resource: key });
    const found = await call.read(
      `select ${columns} from iam.${table} r where tenant_id = $1 and id > $2 order by id limit $3`,
      [input.tenantId, input.after, input.limit],
    );
    return { [key]: found };
  });
}

export function deleter(key: string, field: string, action: string, table: string, condition = 'true') {
  return method(z.strictObject({ tenantId: id, [field]: id }), (call, input) => {
    const { tenantId, [field]: target } = input as Record<string, string>;
    return call.change({ tenantId: tenantId!, action, resource: `${key}/${target}` }, async (tx) => {
      const gone = await rows(
        tx,
        `delete from iam.${table} where id = $1 and tenant_id = $2 and ${condition} returning id`,
        [target!, tenantId!],
      );
      only(gone, `${table.slice(0, -1)} that may be deleted`);
      return [{ deleted: true }, { resourceId: target! }];
    });
  });
}
