/** Tests the manifests of docs/kubernetes: their fields, that they fit each other and the code, and their tollgate.yaml. */

import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Ajv } from 'ajv';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { createAccess } from '../../facade/cli/serving/client-access.ts';
import type { Config } from '../../facade/config/config.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { policyParts } from '../../facade/runtime/policy-parts.ts';
import { readSecret } from '../../facade/secrets/secret-source.ts';
import { MIN_SECRET, openPlaces } from '../../facade/secrets/secrets.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import { createOriginCheck } from '../../facade/serve/http/origin-check.ts';
import { loadPolicy } from '../../policies/engine/policy-loader.ts';
import { MountedFolder } from '../config/mounted-folder.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { ROOT } from './markdown.ts';

const FOLDER = path.join(ROOT, 'docs', 'kubernetes');
const KUSTOMIZATION = 'kustomization.yaml';
/** Applied by themselves: a Secret is filled in first, and a Job cannot be changed. */
const APART = ['secret.example.yaml', 'migrate-job.yaml'];

type Labels = Readonly<Record<string, string>>;
interface Port {
  readonly name: string;
  readonly port: number;
  readonly targetPort: string;
  readonly containerPort: number;
}
interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
  readonly timeoutSeconds?: number;
}
interface Container {
  readonly image: string;
  readonly args: readonly string[];
  readonly ports: readonly Port[];
  readonly env: readonly {
    readonly name: string;
    readonly valueFrom: { readonly secretKeyRef?: { readonly key: string } };
  }[];
  readonly securityContext: object;
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[];
  readonly startupProbe: Probe;
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly resources: { readonly requests: Labels; readonly limits: Labels };
}
interface Pod {
  readonly metadata: { readonly labels: Labels };
  readonly spec: {
    readonly automountServiceAccountToken: boolean;
    readonly securityContext: {
      readonly runAsNonRoot: boolean;
      readonly runAsUser: number;
      readonly seccompProfile: object;
    };
    readonly terminationGracePeriodSeconds: number;
    readonly containers: readonly [Container];
    readonly volumes: readonly {
      readonly name: string;
      readonly secret?: { readonly items: readonly { readonly key: string; readonly path: string }[] };
    }[];
  };
}
interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly labels: Labels };
  readonly data: Labels;
  readonly stringData: Labels;
  readonly spec: {
    readonly replicas: number;
    readonly strategy: { readonly rollingUpdate: object };
    readonly selector: Labels & { readonly matchLabels: Labels };
    readonly template: Pod;
    readonly ports: readonly Port[];
    readonly clusterIP?: string;
    readonly minReplicas: number;
    readonly minAvailable: number;
    readonly scaleTargetRef: object;
    readonly metrics: readonly [{ readonly pods: { readonly metric: { readonly name: string } } }];
    readonly podSelector: { readonly matchLabels: Labels };
    readonly policyTypes: readonly string[];
    readonly ingress: readonly {
      readonly from: readonly object[];
      readonly ports: readonly { readonly port: number }[];
    }[];
    readonly egress: readonly {
      readonly to: readonly object[];
      readonly ports: readonly { readonly port: number }[];
    }[];
    readonly endpoints: readonly [
      {
        readonly port: string;
        readonly path: string;
        readonly authorization: { readonly credentials: { readonly key: string } };
      },
    ];
  };
}

const manifests: readonly Manifest[] = readdirSync(FOLDER)
  .filter((name) => name.endsWith('.yaml') && name !== KUSTOMIZATION)
  .flatMap((name) => parseAllDocuments(readFileSync(path.join(FOLDER, name), 'utf8')))
  .map((document) => document.toJS() as Manifest);

/** Returns the manifest of this kind and name. */
function manifest(kind: string, name = 'tollgate'): Manifest {
  const found = manifests.filter((one) => one.kind === kind && one.metadata.name === name);
  if (found.length !== 1) throw new Error(`${found.length} manifests of kind ${kind} with the name ${name}`);
  return found[0] as Manifest;
}

const pod = (name?: string): Pod['spec'] => manifest('Deployment', name).spec.template.spec;
const container = (name?: string): Container => pod(name).containers[0];
const includes = (labels: Labels, wanted: Labels): boolean =>
  Object.entries(wanted).every(([key, value]) => labels[key] === value);

/** The fields of a ServiceMonitor that are used, from its CRD (monitoring.coreos.com/v1). */
const SERVICE_MONITOR = closed({
  apiVersion: { const: 'monitoring.coreos.com/v1' },
  kind: { const: 'ServiceMonitor' },
  metadata: closed({ name: { type: 'string' }, labels: { type: 'object' } }),
  spec: closed({
    selector: closed({ matchLabels: { type: 'object', additionalProperties: { type: 'string' } } }),
    endpoints: {
      type: 'array',
      items: closed({
        port: { type: 'string' },
        path: { type: 'string' },
        interval: { type: 'string', pattern: '^\\d+s$' },
        authorization: closed({
          type: { type: 'string' },
          credentials: closed({ name: { type: 'string' }, key: { type: 'string' } }),
        }),
      }),
    },
  }),
});

function closed(properties: Readonly<Record<string, object>>): object {
  return { type: 'object', additionalProperties: false, required: Object.keys(properties), properties };
}

/**
 * Returns what the types of kubernetes-models refuse. Its validators check values, but accept unknown fields; for a
 * literal, the compiler refuses these.
 */
function typeErrors(documents: readonly Manifest[]): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-manifests-'));
  try {
    symlinkSync(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'));
    const lines = documents.flatMap((document, at) => [
      `import type { I${document.kind} as T${at} } from 'kubernetes-models/${document.apiVersion}';`,
      `export const d${at}: T${at} = ${JSON.stringify(document)};`,
    ]);
    writeFileSync(path.join(folder, 'manifests.mts'), lines.join('\n'));
    const compiler = path.join(ROOT, 'node_modules', '.bin', 'tsc');
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'NodeNext', '--types', ''];
    const { stdout, stderr } = spawnSync(compiler, [...options, 'manifests.mts'], { cwd: folder, encoding: 'utf8' });
    return stdout + stderr;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const isCustom = ({ kind }: Manifest): boolean => kind === 'ServiceMonitor';

describe('the manifests' + verifies('FL-14'), () => {
  it('are in the kustomization, except for the example of secrets and the Job of the store', () => {
    const { resources } = parse(readFileSync(path.join(FOLDER, KUSTOMIZATION), 'utf8')) as { resources: string[] };
    expect([...resources, KUSTOMIZATION, ...APART].sort()).toEqual(readdirSync(FOLDER).sort());
    expect(manifests.filter(({ metadata }) => metadata.namespace !== undefined)).toEqual([]);
  });

  it.each(
    partOf(
      manifests.filter((one) => !isCustom(one)).map((one) => [`${one.kind} ${one.metadata.name}`, one] as const),
      3,
    ),
  )('%s is valid by the schemas of Kubernetes', async (_name, one) => {
    const schemas = `kubernetes-models/${one.apiVersion}`;
    const models = (await import(schemas)) as Readonly<Record<string, new (data: unknown) => { validate(): void }>>;
    const Model = models[one.kind];
    expect(Model).toBeDefined();
    expect(() => Model === undefined || new Model(one).validate()).not.toThrow();
  });

  inFull(
    'have no field that Kubernetes does not know',
    () => {
      expect(typeErrors(manifests.filter((one) => !isCustom(one)))).toBe('');
      const broken = structuredClone(manifest('Deployment')) as unknown as {
        spec: { template: { spec: { containers: object[] } } };
      };
      broken.spec.template.spec.containers[0] = { ...container(), readynessProbe: {} };
      expect(typeErrors([broken as unknown as Manifest])).toContain('readynessProbe');
    },
    60_000,
  );

  it('have a ServiceMonitor with fields of its CRD', () => {
    const validate = new Ajv().compile(SERVICE_MONITOR);
    expect([validate(manifest('ServiceMonitor')), validate.errors]).toEqual([true, null]);
    expect(validate({ ...manifest('ServiceMonitor'), metadata: { name: 'x', labels: {}, other: 1 } })).toBe(false);
  });

  it('select pods and ports that exist', () => {
    for (const { spec, metadata } of manifests.filter(({ kind }) => kind === 'Service')) {
      const chosen = manifests.filter(
        (one) => one.kind === 'Deployment' && includes(one.spec.template.metadata.labels, spec.selector),
      );
      expect(chosen.length, metadata.name).toBe(1);
      const ports = chosen[0]?.spec.template.spec.containers[0].ports ?? [];
      for (const { port, targetPort } of spec.ports)
        expect(ports).toContainEqual({ name: targetPort, containerPort: port });
    }
    for (const name of ['tollgate', 'notes']) {
      const { selector, template } = manifest('Deployment', name).spec;
      expect(selector.matchLabels).toEqual({ 'app.kubernetes.io/name': name });
      expect(includes(template.metadata.labels, selector.matchLabels)).toBe(true);
      expect(manifest('NetworkPolicy', name).spec.podSelector.matchLabels).toEqual(selector.matchLabels);
    }
    expect(manifest('PodDisruptionBudget').spec.selector.matchLabels).toEqual({ 'app.kubernetes.io/name': 'tollgate' });
    const { selector, endpoints } = manifest('ServiceMonitor').spec;
    const monitored = manifests.filter(
      ({ kind, metadata }) => kind === 'Service' && includes(metadata.labels, selector.matchLabels),
    );
    expect(monitored.map(({ metadata }) => metadata.name)).toEqual(['tollgate']);
    expect(monitored[0]?.spec.ports.map(({ name }) => name)).toEqual([endpoints[0].port]);
  });

  it('migrate the store with the image, configuration and secrets of the replicas', () => {
    const job = manifest('Job', 'tollgate-migrate').spec.template;
    const [{ image, args, env, securityContext, volumeMounts }] = job.spec.containers;
    expect(args).toEqual(['state', 'migrate']);
    expect({ image, env, securityContext, volumeMounts }).toEqual({
      image: container().image,
      env: container().env,
      securityContext: container().securityContext,
      volumeMounts: container().volumeMounts,
    });
    expect(job.spec.securityContext).toEqual(pod().securityContext);
    expect(includes(job.metadata.labels, manifest('Service').spec.selector)).toBe(false);
  });

  it('let a pod do no more than it needs', () => {
    for (const name of ['tollgate', 'notes']) {
      const { securityContext, automountServiceAccountToken } = pod(name);
      expect(automountServiceAccountToken).toBe(false);
      expect(securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } });
      expect(securityContext.runAsUser).toBeGreaterThan(0);
      expect(container(name).securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
      expect(container(name).resources.limits.memory).toBeDefined();
      const { policyTypes } = manifest('NetworkPolicy', name).spec;
      expect(policyTypes).toEqual(['Ingress', 'Egress']);
    }
    expect(
      container()
        .volumeMounts.filter(({ readOnly }) => readOnly !== true)
        .map(({ mountPath }) => mountPath),
    ).toEqual(['/state', '/tmp']);
  });

  it('keep the service during an upgrade and a disruption', () => {
    const { replicas, strategy } = manifest('Deployment').spec;
    expect(strategy.rollingUpdate).toMatchObject({ maxUnavailable: 0 });
    const { minReplicas, scaleTargetRef } = manifest('HorizontalPodAutoscaler').spec;
    expect(scaleTargetRef).toEqual({ apiVersion: 'apps/v1', kind: 'Deployment', name: 'tollgate' });
    expect(minReplicas).toBe(replicas);
    expect(manifest('PodDisruptionBudget').spec.minAvailable).toBeLessThan(minReplicas);
  });
});

describe('the tollgate.yaml of the manifests' + verifies('FL-14'), () => {
  let folder: string;
  let config: Config;
  const env = { POD_IP: '10.1.2.3', ADMIN_TOKEN: 'a'.repeat(32), AGENT_TOKEN: 'b'.repeat(32) };
  const load = (variables: Readonly<Record<string, string>>): Config =>
    loadConfig(path.join(folder, 'config', 'tollgate.yaml'), { env: variables, home: '/state', isShared: true });

  beforeAll(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'tollgate-configmap-'));
    mkdirSync(path.join(folder, 'workspace'));
    const { 'tollgate.yaml': text = '', ...others } = manifest('ConfigMap', 'tollgate-config').data;
    // Only the image has a folder /workspace.
    const placed = text.replace('workspace: /workspace', `workspace: ${path.join(folder, 'workspace')}`);
    new MountedFolder(path.join(folder, 'config')).put({ ...others, 'tollgate.yaml': placed });
    config = load(env);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it('loads without a warning, with a policy', async () => {
    expect(config.warnings).toEqual([]);
    const policy = await loadPolicy(policyParts(config, { cache: path.join(folder, 'cache') }));
    expect(policy.ruleIds).toContain('ask-for-writes');
    policy.close();
  });

  it('has the folders, ports, names and secrets of the other manifests', () => {
    const { listen, state, secretSources, servers } = config;
    const ports = container().ports.map(({ containerPort }) => containerPort);
    expect(ports[0]).toBe(listen.port);
    const mounts = container().volumeMounts.map(({ mountPath }) => mountPath);
    expect(mounts.some((mount) => state.startsWith(`${mount}/`))).toBe(true);
    const items = pod().volumes.flatMap(({ secret }) => secret?.items ?? []);
    const files = [...secretSources.values()].map((source) => (source.from === 'file' ? source.file : ''));
    expect(files.sort()).toEqual(items.map((item) => `/secrets/${item.path}`).sort());
    const given = manifest('Secret', 'tollgate-secrets').stringData;
    const wanted = container().env.flatMap(({ valueFrom }) => valueFrom.secretKeyRef?.key ?? []);
    expect([...wanted, ...items.map(({ key }) => key)].sort()).toEqual(Object.keys(given).sort());
    const { hostname, port } = new URL(servers.get('notes')?.url ?? '');
    expect(manifest('Service', hostname).spec.ports.map((one) => String(one.port))).toEqual([port]);
    // The Host headers of a client, of the cluster, and of Prometheus, which uses the address of the pod.
    const check = createOriginCheck(listen, listen.port);
    expect(['tollgate.example.com', 'tollgate:7310', '10.1.2.3:7310', '10.1.2.4:7310'].map(check.allowsHost)).toEqual([
      true,
      true,
      true,
      false,
    ]);
  });

  it('lets through the network what it needs', () => {
    const { ingress, egress } = manifest('NetworkPolicy').spec;
    const [http, hop] = container().ports.map(({ containerPort }) => containerPort);
    expect(ingress.map(({ ports }) => ports.map(({ port }) => port))).toEqual([[http], [hop]]);
    const out = egress.flatMap(({ ports }) => ports.map(({ port }) => port));
    const remote = [...config.servers.values()].map(({ url = '' }) => Number(new URL(url).port));
    expect(out).toEqual(expect.arrayContaining([...remote, hop, 53]));
    expect([...ingress.flatMap(({ from }) => from), ...egress.flatMap(({ to }) => to)]).not.toContainEqual({});
    expect(manifest('NetworkPolicy', 'notes').spec.egress).toEqual([]);
  });

  it('ends before Kubernetes kills the pod', () => {
    expect(config.listen.unreadyMs).toBeGreaterThan(0);
    const longestMs = config.listen.unreadyMs + config.limits.drainMs;
    expect(pod().terminationGracePeriodSeconds * 1000).toBeGreaterThan(longestMs + 5000);
  });

  it.each(['ADMIN_TOKEN', 'AGENT_TOKEN'])('is refused while %s is a placeholder', (name) => {
    const left = manifest('Secret', 'tollgate-secrets').stringData[name] ?? '';
    expect(() => load({ ...env, [name]: left })).toThrow(expect.objectContaining({ code: 'CONFIG_INVALID' }) as Error);
  });

  it('uses no placeholder of a file as a secret', async () => {
    const { stringData } = manifest('Secret', 'tollgate-secrets');
    for (const { key } of pod().volumes.flatMap(({ secret }) => secret?.items ?? [])) {
      writeFileSync(path.join(folder, key), stringData[key] ?? '');
      const source = { from: 'file', file: path.join(folder, key) } as const;
      const value = await readSecret(key, source, openPlaces({ state: folder, env: {} }));
      expect(value?.length).toBeLessThan(MIN_SECRET);
    }
  });
});

describe('what the manifests ask of a process' + verifies('FL-14', 'FL-18'), () => {
  it('is there: the probes, and the metric of the autoscaler for the token of the monitor', async () => {
    const facade = await startFacade(
      'version: 1\nworkspace: ./workspace\nstate: ./state\nlisten: {port: 0}\n' +
        `principals: [{id: admin, owner: true, token: "\${env:ADMIN_TOKEN}"}]\n`,
      { env: { ADMIN_TOKEN: 'a'.repeat(32) } },
    );
    const { config, gateway } = facade.assembled;
    const server = await serveHttp({
      facade: gateway,
      listen: config.listen,
      ...createAccess(() => config, config.listen),
      drainMs: 0,
      onFault: (thrown) => {
        throw thrown;
      },
    });
    try {
      const { startupProbe, livenessProbe, readinessProbe } = container();
      for (const { httpGet } of [startupProbe, livenessProbe, readinessProbe]) {
        expect(httpGet.port).toBe(container().ports[0]?.name);
        expect((await fetch(new URL(httpGet.path, server.url))).status).toBe(200);
      }
      expect([livenessProbe.httpGet.path, readinessProbe.httpGet.path]).toEqual(['/livez', '/readyz']);
      // A check of Tollgate itself may take 2 s.
      expect(readinessProbe.timeoutSeconds).toBeGreaterThan(2);
      const { path: route, authorization } = manifest('ServiceMonitor').spec.endpoints[0];
      expect(authorization.credentials.key).toBe('ADMIN_TOKEN');
      const page = await fetch(new URL(route, server.url), { headers: { authorization: `Bearer ${'a'.repeat(32)}` } });
      const { name } = manifest('HorizontalPodAutoscaler').spec.metrics[0].pods.metric;
      expect(await page.text()).toMatch(new RegExp(`^${name} 0$`, 'm'));
    } finally {
      await server.close();
      await facade.close();
    }
  });

  it('is the command of the image, which has the folders that are mounted', () => {
    const image = readFileSync(path.join(ROOT, 'Containerfile'), 'utf8');
    expect(image).toContain(`USER ${pod().securityContext.runAsUser}:`);
    expect(image).toContain(`CMD ["${container().args.join('", "')}"]`);
    for (const mount of ['/config', '/state']) expect(image).toMatch(new RegExp(`mkdir -p .*${mount}\\b`));
    expect(existsSync(path.join(ROOT, 'docs/kubernetes.md'))).toBe(true);
  });
});
