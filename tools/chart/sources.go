// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// mark begins every template that this program writes.
const mark = "{{- /* Made by `make chart` from manifests/"

// source is one file of manifests, or all files of a pattern, that become templates.
type source struct {
	pattern string // in manifests; kustomize's own files are left out
	folder  string // in the chart's templates
	when    string // the condition under which the chart has it
	edits   []edit // of the only document
}

const (
	always        = "true"
	withScheduler = ".Values.scheduler.enabled"
	withExporter  = ".Values.exporter.enabled"
	withAgent     = ".Values.nodeAgent.enabled"
	withPools     = ".Values.pools.enabled"
	withUI        = ".Values.ui.enabled"

	withNetworkPolicy = ".Values.networkPolicy.enabled"
)

// keep makes an uninstall of the release leave a definition, and with it all objects of its kind.
var keep = []edit{{path: "metadata/annotations/controller-gen.kubebuilder.io~1version", where: after, text: "helm.sh/resource-policy: keep"}}

// connecting is the edit of the peers that may read metrics.
var connecting = []edit{{path: "spec/ingress/0/from", text: "from:\n{{- toYaml .Values.networkPolicy.from | nindent 4 }}"}}

func sources(manifests fs.FS) ([]source, error) {
	agent := workload("nodeAgent", "nvtopo-node-agent")
	for _, o := range []struct{ component, value string }{
		{"kubelet-files", ".Values.nodeAgent.kubeletFiles"},
		{"kubelet-certificate", ".Values.nodeAgent.kubeletCertificate"},
		{"pinning", ".Values.nodeAgent.pinning"},
	} {
		edits, err := optional(manifests, o.component, o.value)
		if err != nil {
			return nil, err
		}
		agent = append(agent, edits...)
	}
	return []source{
		{"crd/*.yaml", "crds", ".Values.crds.enabled", keep},
		{"pools/pool.*.yaml", "crds", "and .Values.crds.enabled " + withPools, keep},
		{"rbac/checker.yaml", "rbac", always, nil},
		{"rbac/metrics-reader.yaml", "rbac", always, nil},
		{"rbac/scheduler.yaml", "rbac", withScheduler, nil},
		{"rbac/what-if.yaml", "rbac", withScheduler, nil},
		{"rbac/exporter.yaml", "rbac", withExporter, nil},
		{"rbac/node-agent.yaml", "rbac", withAgent, nil},
		{"policy/*.yaml", "policy", ".Values.policies.enabled", nil},
		{"flowcontrol/*.yaml", "flowcontrol", ".Values.flowControl.enabled", nil},
		{"network/*.yaml", "network", withNetworkPolicy, connecting},
		{"scheduler/profiles.yaml", "scheduler", withScheduler, nil},
		{"scheduler/deployment.yaml", "scheduler", withScheduler, slices.Concat(workload("scheduler", "nvtopo-scheduler"), []edit{
			{path: "spec/replicas", text: "replicas: {{ .Values.scheduler.replicas }}"},
			{path: container + "args/0", text: `- --config=/etc/nvtopo/{{ include "nvtopo.schedulerConfig" . }}`},
			{path: container + "args/-", where: after, text: extraArgs("scheduler")},
			// The same flags, so that they are checked together with the configuration.
			{path: initContainer + "image", text: `{{- include "nvtopo.image" (list . "nvtopo-scheduler" .Values.scheduler.image) | nindent 8 }}`},
			{path: initContainer + "args/0", text: `- --config=/etc/nvtopo/{{ include "nvtopo.schedulerConfig" . }}`},
			{path: initContainer + "args/-", where: after, text: extraArgs("scheduler")},
			{path: initContainer + "resources", text: "resources:\n  {{- toYaml .Values.scheduler.resources | nindent 10 }}"},
			{path: "spec/template/metadata/labels", where: after, text: annotations(
				"scheduler", `checksum/config: {{ include (print $.Template.BasePath "/scheduler/config.yaml") . | sha256sum }}`)},
			{path: "spec/template/spec/affinity", where: before, text: field("scheduler", "nodeSelector") + "\n" + field("scheduler", "tolerations")},
		})},
		{"exporter/daemonset.yaml", "exporter", withExporter, slices.Concat(workload("exporter", "nvtopo-exporter"), selected("exporter"), []edit{
			{path: pod + "runtimeClassName", text: "{{- with .Values.exporter.runtimeClassName }}\nruntimeClassName: {{ . }}\n{{- end }}"},
			{path: container + "args/0", text: `- {{ printf "--source=%s" .Values.exporter.source | quote }}`},
			{path: container + "args/-", where: after, text: extraArgs("exporter")},
			{path: "spec/template/metadata/labels", where: after, text: annotations("exporter", "")},
		})},
		{"node-agent/daemonset.yaml", "node-agent", withAgent, slices.Concat(agent, selected("nodeAgent"), []edit{
			{path: container + "args/0", text: "- --mode={{ .Values.nodeAgent.mode }}"},
			{path: container + "args/-", where: after, text: extraArgs("nodeAgent")},
			{path: "spec/template/metadata/annotations", where: after, text: "{{- with .Values.nodeAgent.podAnnotations }}\n{{- toYaml . | nindent 8 }}\n{{- end }}"},
		})},
		{"pools/rbac.yaml", "pools", withPools, nil},
		{"pools/priority-class.yaml", "pools", withPools, nil},
		{"pools/policy-*.yaml", "pools", "and .Values.policies.enabled " + withPools, nil},
		{"pools/network-policy.yaml", "pools", "and " + withNetworkPolicy + " " + withPools, connecting},
		{"pools/deployment.yaml", "pools", withPools, slices.Concat(workload("pools", "nvtopo-pool-controller"), []edit{
			{path: "spec/replicas", text: "replicas: {{ .Values.pools.replicas }}"},
			{path: container + "ports", where: before, text: poolArgs + "\n" + exportMount},
			{path: pod + "securityContext/runAsGroup", where: after, text: "{{- if .Values.pools.export.volume }}\nfsGroup: 65532\n{{- end }}"},
			{path: pod + "containers", where: before, text: "{{- with .Values.pools.export.volume }}\nvolumes:\n- name: export\n  {{- toYaml . | nindent 8 }}\n{{- end }}"},
			{path: "spec/template/metadata/labels", where: after, text: annotations("pools", "")},
			{path: "spec/template/spec/affinity", where: before, text: field("pools", "nodeSelector") + "\n" + field("pools", "tolerations")},
		})},
		{"ui/rbac.yaml", "ui", withUI, nil},
		{"ui/service.yaml", "ui", withUI, nil},
		{"ui/network-policy.yaml", "ui", "and " + withNetworkPolicy + " " + withUI, nil},
		{"ui/deployment.yaml", "ui", withUI, slices.Concat(workload("ui", "nvtopo"), []edit{
			{path: container + "args/-", where: after, text: extraArgs("ui")},
			{path: "spec/template/metadata/labels", where: after, text: annotations("ui", "")},
			{path: pod + "securityContext", where: before, text: field("ui", "nodeSelector") + "\n" + field("ui", "tolerations")},
		})},
		{"alerts/placement.yaml", "monitoring", ".Values.monitoring.enabled", nil},
		{"alerts/monitors.yaml", "monitoring", ".Values.monitoring.enabled", nil},
		{"pools/alerts/pools.yaml", "monitoring", "and .Values.monitoring.enabled " + withPools, nil},
		{"pools/alerts/service-monitor.yaml", "monitoring", "and .Values.monitoring.enabled " + withPools, nil},
	}, nil
}

const (
	pod           = "spec/template/spec/"
	container     = pod + "containers/0/"
	initContainer = pod + "initContainers/0/"
)

// poolArgs are the flags of the pool controller.
const poolArgs = `{{- if or .Values.pools.export.volume .Values.pools.usageStorageLimit .Values.pools.extraArgs }}
args:
{{- if .Values.pools.export.volume }}
- --export-dir=/export
{{- with .Values.pools.export.command }}
- {{ printf "--export-command=%s" . | quote }}
{{- end }}
{{- end }}
{{- with .Values.pools.usageStorageLimit }}
- --usage-storage-limit={{ . }}
{{- end }}
{{- with .Values.pools.extraArgs }}
{{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}`

// exportMount is the volume to which the pool controller writes invoices, and the environment of its
// export command. All else is read-only.
const exportMount = `{{- if .Values.pools.export.volume }}
env:
- name: HOME
  value: /export
{{- with .Values.pools.export.env }}
{{- toYaml . | nindent 8 }}
{{- end }}
{{- with .Values.pools.export.envFrom }}
envFrom:
{{- toYaml . | nindent 8 }}
{{- end }}
volumeMounts:
- name: export
  mountPath: /export
{{- end }}`

// workload makes the edits common to all workloads.
func workload(values, image string) []edit {
	return []edit{
		{path: pod + "serviceAccountName", where: after, text: "{{- with .Values.image.pullSecrets }}\nimagePullSecrets:\n{{- toYaml . | nindent 6 }}\n{{- end }}"},
		{path: container + "image", text: fmt.Sprintf("{{- include \"nvtopo.image\" (list . %q .Values.%s.image) | nindent 8 }}", image, values)},
		{path: container + "resources", text: "resources:\n  {{- toYaml .Values." + values + ".resources | nindent 10 }}"},
	}
}

// selected makes the edits of a DaemonSet, the selection of its nodes.
func selected(values string) []edit {
	return []edit{
		{path: pod + "nodeSelector", text: field(values, "nodeSelector")},
		{path: pod + "tolerations", text: field(values, "tolerations")},
	}
}

// field returns a field of the pod that is left out if the value is empty.
func field(values, name string) string {
	return fmt.Sprintf("{{- with .Values.%s.%s }}\n%s:\n  {{- toYaml . | nindent 8 }}\n{{- end }}", values, name, name)
}

// extraArgs adds the user's flags to those of the container.
func extraArgs(values string) string {
	return "{{- with .Values." + values + ".extraArgs }}\n{{- toYaml . | nindent 8 }}\n{{- end }}"
}

// annotations returns the annotations of a pod that has none in its manifest, with line in front unless
// it is empty.
func annotations(values, line string) string {
	if line != "" {
		return "annotations:\n  " + line + "\n  {{- with .Values." + values + ".podAnnotations }}\n  {{- toYaml . | nindent 8 }}\n  {{- end }}"
	}
	return "{{- with .Values." + values + ".podAnnotations }}\nannotations:\n  {{- toYaml . | nindent 8 }}\n{{- end }}"
}

// templates returns the files to write, by their path in the chart's templates.
func templates(manifests fs.FS) (map[string][]byte, error) {
	all, err := sources(manifests)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, s := range all {
		names, err := fs.Glob(manifests, s.pattern)
		if err != nil || len(names) == 0 {
			return nil, fmt.Errorf("no manifest %s: %w", s.pattern, err)
		}
		for _, name := range names {
			if path.Base(name) == "kustomization.yaml" {
				continue
			}
			text, err := template(manifests, name, &s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			target := path.Join(s.folder, path.Base(name))
			if out[target] != nil {
				return nil, fmt.Errorf("two manifests are made into %s", target)
			}
			out[target] = text
		}
	}
	config, err := schedulerConfig(manifests)
	if err != nil {
		return nil, err
	}
	out["scheduler/config.yaml"] = config
	return out, nil
}

func template(manifests fs.FS, name string, s *source) ([]byte, error) {
	data, err := fs.ReadFile(manifests, name)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	text := literal(string(data))
	if len(s.edits) > 0 {
		if text, err = apply(text, s.edits); err != nil {
			return nil, err
		}
	}
	return wrapped(name, s.when, text), nil
}

// wrapped makes text a template that renders under a condition.
func wrapped(from, when, text string) []byte {
	text = strings.TrimPrefix(strings.TrimSpace(text), "---\n")
	return []byte(mark + from + ". Do not edit. */ -}}\n{{- if " + when + " }}\n" + text + "\n{{- end }}\n")
}

// literal escapes text for the template engine that is meant for other programs, such as Prometheus.
func literal(text string) string { return strings.ReplaceAll(text, "{{", `{{ "{{" }}`) }

// schedulerConfig makes the ConfigMap that kustomize generates.
func schedulerConfig(manifests fs.FS) ([]byte, error) {
	names, err := fs.Glob(manifests, "scheduler/scheduler-config*.yaml")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("no configuration of the scheduler: %w", err)
	}
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: nvtopo-scheduler-config\n  namespace: nvtopo-system\n  labels:\n    app.kubernetes.io/part-of: nvtopo\ndata:\n")
	b.WriteString("{{- with .Values.scheduler.config }}\n  config.yaml: |\n    {{- . | nindent 4 }}\n{{- else }}\n")
	for _, name := range names {
		data, err := fs.ReadFile(manifests, name)
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		b.WriteString("  " + path.Base(name) + ": |\n")
		for line := range strings.Lines(literal(string(data))) {
			b.WriteString("    " + line)
		}
	}
	b.WriteString("{{- end }}\n")
	return wrapped("scheduler", withScheduler, b.String()), nil
}

// generated lists the files that this program wrote earlier.
func generated(folder fs.FS) ([]string, error) {
	out := map[string]bool{}
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(folder, name)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if strings.HasPrefix(string(data), mark) {
			out[name] = true
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the templates: %w", err)
	}
	return slices.Sorted(maps.Keys(out)), nil
}
