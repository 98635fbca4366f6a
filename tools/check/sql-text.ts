/**
 * SQL as the gates read it: comments blanked out with every offset and line kept, and the text around template holes
 * joined. Bodies in dollar quotes and strings given to EXECUTE are code, so they stay.
 */
import ts from 'typescript';

const blank = (s: string) => s.replace(/[^\n]/g, ' ');

/** The same text, of the same length, without `-- …` and (nested) block comments. */
export function withoutComments(sql: string): string {
  let out = '';
  let i = 0;
  while (i < sql.length) {
    const two = sql.slice(i, i + 2);
    let end = i + 1;
    if (two === '--') {
      end = sql.indexOf('\n', i);
      if (end === -1) end = sql.length;
      out += blank(sql.slice(i, end));
    } else if (two === '/*') {
      let depth = 1;
      end = i + 2;
      while (end < sql.length && depth > 0) {
        const at = sql.slice(end, end + 2);
        if (at === '/*') depth += 1;
        else if (at === '*/') depth -= 1;
        end += at === '/*' || at === '*/' ? 2 : 1;
      }
      out += blank(sql.slice(i, end));
    } else if (sql[i] === "'" || sql[i] === '"') {
      end = sql.indexOf(sql[i]!, i + 1) + 1;
      if (end === 0) end = sql.length;
      out += sql.slice(i, end);
    } else out += sql[i];
    i = end;
  }
  return out;
}

export interface SqlText {
  /** Offset of the first character in the source file. */
  readonly start: number;
  readonly text: string;
}

const SQL = /\b(select|insert\s+into|update|delete\s+from|create|alter|values|default|where|returning|set)\b/i;

/** The string literals and templates of a parsed file that read like SQL; holes of templates become blanks. */
export function sqlStringsOf(file: ts.SourceFile): SqlText[] {
  const found: SqlText[] = [];
  const source = file.text;
  const take = (node: ts.Node, text: string) => {
    if (SQL.test(text)) found.push({ start: node.getStart(file) + 1, text: withoutComments(text) });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) {
      take(node, source.slice(node.getStart(file) + 1, node.getEnd() - 1));
      return;
    }
    if (ts.isTemplateExpression(node)) {
      const start = node.getStart(file) + 1;
      let text = source.slice(start, node.getEnd() - 1);
      for (const span of node.templateSpans) {
        // From `${` to `}`: an operand whose value is not known here.
        const from = span.getFullStart() - 2 - start;
        const to = span.literal.getStart(file) + 1 - start;
        text = text.slice(0, from) + source.slice(start + from, start + to).replace(/[^\n]/g, '?') + text.slice(to);
      }
      take(node, text);
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

export function parse(path: string, text: string): ts.SourceFile {
  return ts.createSourceFile(
    path,
    text,
    ts.ScriptTarget.Latest,
    false,
    path.endsWith('x') ? ts.ScriptKind.TSX : undefined,
  );
}
