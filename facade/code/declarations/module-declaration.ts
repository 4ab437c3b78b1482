/**
 * Writes what code can import from the module of a server, as TypeScript: the functions, and the types of what they
 * take and return.
 */
import { canonicalize } from '../../../catalogs/schemas/canonical-schema.ts';
import { isNever, type JsonSchema, schemaEntries, typesOf, valuesOf } from '../../../catalogs/schemas/json-schema.ts';
import { inTimeSlices } from '../../../catalogs/text/time-slices.ts';
import { createValidator } from '../../../catalogs/validation/validator.ts';
import {
  spend,
  type TypePlace,
  type TypeStyle,
  type TypeText,
  TypeTooLong,
  type TypeWriter,
  typeText,
} from './schema-types.ts';
import { commentText, docComment, stringLiteral } from './source-text.ts';

/** A tool that code may call. */
export interface DeclaredTool {
  /** The tool's own name. */
  readonly name: string;
  readonly description?: string;
  /** The schemas as the server sent them. */
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly outputSchema?: Readonly<Record<string, unknown>>;
  /** What a call does: hints of the server, or what the owner says. */
  readonly annotations?: { readonly readOnlyHint?: unknown; readonly destructiveHint?: unknown };
  /** Why a call may need an approval, or may be refused. */
  readonly condition?: string;
}

/** A tool with its name in code, from `functionNamesOf`. */
export interface DeclaredFunction extends DeclaredTool {
  readonly functionName: string;
}

/** Bytes of the types of one schema. A longer type is written with fewer levels and without comments. */
const MAX_TYPES = 32_000;
const MAX_CONDITION = 500;
const INDENT = '  ';
/** Tried in this order until the types of a schema fit. */
const DETAILS = [
  { maxDepth: 64, hasComments: true },
  { maxDepth: 64, hasComments: false },
  { maxDepth: 4, hasComments: false },
  { maxDepth: 2, hasComments: false },
  { maxDepth: 1, hasComments: false },
] as const;
const SHORTENED = 'Shortened, because the whole type is too long.';
const HIDDEN = 'The type cannot be shown. Errors name what is wrong.';

/**
 * The types that every module has. They are repeated in each, so that the text of one module is complete. `A` is a
 * list, so that an argument can be optional.
 */
const SHARED_TYPES = `\
  // f(x) returns the value, f.async(x) a promise of it. A call that fails returns an error, it does not throw.
  type ToolError = { error: string; code?: string };
  type ToolFunction<A extends unknown[], R> = {
    (...args: A): R | ToolError;
    async(...args: A): Promise<R | ToolError>;
  };
`;
/** Names that definitions of schemas cannot get. */
const SHARED_NAMES = ['Promise', 'Record', 'ToolError', 'ToolFunction'];

/**
 * Returns `declare module "host:mcp-github" { … }`, which compiles alone. The functions are in the order of their
 * names, so that the text does not depend on the order of `tools`. A tool without an output schema returns `any`: its
 * result is usually a text or its JSON value, and nothing checks the types of agents' code, so that `unknown` would
 * only cost casts. At most about 64 kB for one tool; what is longer becomes `unknown`, and says so. Lets
 * other calls run between the tools.
 */
export async function moduleDeclaration(module: {
  readonly name: string;
  readonly tools: readonly DeclaredFunction[];
}): Promise<string> {
  const names = new TypeNames(SHARED_NAMES);
  const sorted = [...module.tools].sort((left, right) => (left.functionName < right.functionName ? -1 : 1));
  const texts = [SHARED_TYPES];
  for await (const tool of inTimeSlices(sorted)) texts.push(functionDeclaration(tool, names));
  return `declare module ${stringLiteral(module.name)} {\n${texts.join('\n')}}\n`;
}

function functionDeclaration(tool: DeclaredFunction, names: TypeNames): string {
  const base = pascalCase(tool.functionName);
  const input = schemaTypes(tool.inputSchema, { as: 'input', wanted: `${base}Input`, names });
  const isOptional = createValidator(tool.inputSchema).check({}).length === 0;
  const output =
    tool.outputSchema === undefined
      ? { text: '', name: 'any' }
      : schemaTypes(tool.outputSchema, { as: 'output', wanted: `${base}Output`, names });
  const comment = docComment(effectTexts(tool), INDENT);
  const type = `ToolFunction<[${input.name}${isOptional ? '?' : ''}], ${output.name}>`;
  return `${input.text}${output.text}${comment}${INDENT}export const ${tool.functionName}: ${type};\n`;
}

/** Returns the description of a tool, and what a call does. */
function effectTexts({ description = '', annotations = {}, condition = '' }: DeclaredTool): readonly string[] {
  const { readOnlyHint: reads, destructiveHint: destroys } = annotations;
  // MCP: a tool that is not read-only may destroy something, unless it says that it does not.
  const writes = destroys === false ? 'Effect: writes.' : 'Effect: writes, may destroy.';
  const effect = reads === true ? 'Effect: reads.' : reads === undefined && destroys === undefined ? '' : writes;
  return [commentText(description), effect, commentText(condition && `Condition: ${condition}`, MAX_CONDITION)];
}

interface SchemaRole {
  readonly as: 'input' | 'output';
  readonly wanted: string;
  readonly names: TypeNames;
}

/** Returns the declarations of the types of one schema, and the name of its root's type. */
function schemaTypes(schema: object, { as, wanted, names }: SchemaRole): { text: string; name: string } {
  const canonical = canonicalize(schema, as);
  const anything = as === 'input' ? 'unknown' : 'any';
  const detail = 'quarantined' in canonical ? [] : DETAILS;
  const root = 'quarantined' in canonical ? {} : canonical.schema;
  for (const [at, level] of detail.entries()) {
    const tried = new TypeNames([], names);
    const name = tried.take(wanted);
    const style = { anything, beyond: anything, isBrief: false, maxBytes: MAX_TYPES, ...level } as const;
    try {
      const text = new Declarations(root, { root: name, names: tried, style }).write(at === 0 ? [] : [SHORTENED]);
      names.add(tried);
      return { text, name };
    } catch (error) {
      if (!(error instanceof TypeTooLong)) throw error;
    }
  }
  const name = names.take(wanted);
  const type = as === 'input' ? '{ [name: string]: unknown }' : anything;
  return { text: `${docComment([HIDDEN], INDENT)}${INDENT}type ${name} = ${type};\n`, name };
}

interface OpenDeclaration {
  readonly node: JsonSchema;
  readonly name: string;
  readonly depth: number;
}

/** Writes the type of a schema's root, and of each definition that something refers to. */
class Declarations {
  readonly #queue: OpenDeclaration[];
  readonly #named: Map<string, string>;
  readonly #definitions: ReadonlyMap<string, JsonSchema>;
  readonly #names: TypeNames;
  readonly #root: string;
  readonly #writer: TypeWriter;

  constructor(
    schema: JsonSchema,
    { root, names, style }: { root: string; names: TypeNames; style: Omit<TypeStyle, 'reference'> },
  ) {
    this.#root = root;
    this.#names = names;
    this.#queue = [{ node: schema, name: root, depth: 0 }];
    this.#named = new Map([['#', root]]);
    this.#definitions = new Map(schemaEntries(schema.$defs).map(([name, node]) => [`#/$defs/${name}`, node]));
    const reference: TypeStyle['reference'] = (ref, place) => this.#reference(ref, place);
    this.#writer = { ...style, reference, left: style.maxBytes };
  }

  /** Throws TypeTooLong. */
  write(notes: readonly string[]): string {
    // A definition that is found on the way is written after the others, so that the depth of calls stays small.
    const texts: string[] = [];
    for (let at = 0; at < this.#queue.length; at += 1) {
      const open = this.#queue[at] as OpenDeclaration;
      texts.push(this.#declaration(open, at === 0 ? notes : []));
    }
    return texts.join('');
  }

  #declaration({ node, name, depth }: OpenDeclaration, notes: readonly string[]): string {
    const description = typeof node.description === 'string' && this.#writer.hasComments ? [node.description] : [];
    const { text, joined } = typeText(node, { depth, indent: INDENT, types: [] }, this.#writer);
    const isInterface =
      joined === undefined && text.startsWith('{') && text.endsWith('}') && !text.startsWith('{ [name in');
    const comment = docComment([...description, ...notes], INDENT);
    spend(this.#writer, `${comment}${INDENT}type ${name} = `);
    const body = isInterface ? `interface ${name} ${text}` : `type ${name} = ${text};`;
    return `${comment}${INDENT}${body}\n`;
  }

  #reference(ref: string, place: TypePlace): TypeText {
    const node = this.#definitions.get(ref) ?? {};
    const known = this.#named.get(ref);
    if (known !== undefined) return { text: known };
    if (isSimple(node)) return typeText(node, place, this.#writer);
    if (place.depth >= this.#writer.maxDepth) return { text: this.#writer.beyond };
    const name = this.#names.take(`${this.#root}${pascalCase(ref.slice('#/$defs/'.length))}`);
    this.#named.set(ref, name);
    this.#queue.push({ node, name, depth: place.depth });
    return { text: name };
  }
}

/** Returns true for a definition that is as short as its name. */
function isSimple(node: JsonSchema): boolean {
  if (isNever(node)) return true;
  const values = valuesOf(node);
  if (values !== undefined) return JSON.stringify(values).length <= 40;
  const types = typesOf(node);
  const isScalar = types.length > 0 && !types.includes('object') && !types.includes('array');
  return (
    isScalar &&
    node.$ref === undefined &&
    node.anyOf === undefined &&
    node.oneOf === undefined &&
    node.allOf === undefined
  );
}

/** The names of types that are taken in one module. */
class TypeNames {
  readonly #taken = new Map<string, number>();
  readonly #outer: TypeNames | undefined;

  constructor(taken: readonly string[], outer?: TypeNames) {
    for (const name of taken) this.#taken.set(name, 1);
    this.#outer = outer;
  }

  /** Returns the wanted name, or the first free one with a number. */
  take(wanted: string): string {
    let count = this.#countOf(wanted) + 1;
    let name = count === 1 ? wanted : `${wanted}${count}`;
    while (count > 1 && this.#countOf(name) > 0) {
      count += 1;
      name = `${wanted}${count}`;
    }
    this.#taken.set(wanted, count);
    if (name !== wanted) this.#taken.set(name, 1);
    return name;
  }

  /** Takes over the names of an attempt that succeeded. */
  add(other: TypeNames): void {
    for (const [name, count] of other.#taken) this.#taken.set(name, count);
  }

  #countOf(name: string): number {
    const own = this.#taken.get(name);
    if (own !== undefined || this.#outer === undefined) return own ?? 0;
    return this.#outer.#countOf(name);
  }
}

/** Returns `CreateIssue` for `create_issue`. */
function pascalCase(name: string): string {
  const words = name.split(/[^A-Za-z0-9$]+/).map((word) => word.charAt(0).toUpperCase() + word.slice(1));
  const joined = words.join('');
  return /^[0-9]/.test(joined) || joined === '' ? `_${joined}` : joined;
}
