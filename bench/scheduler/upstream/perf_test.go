// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	_ "k8s.io/component-base/logs/json/register"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	_ "github.com/nvtopo/nvtopo/pkg/apis/config" // the arguments of our plugins
	"github.com/nvtopo/nvtopo/pkg/plugins/fairsort"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

//go:embed *.yaml
var files embed.FS

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// BenchmarkPerfScheduling is the part of command upstream that runs in a process for each workload.
func BenchmarkPerfScheduling(b *testing.B) {
	dir := b.TempDir()
	if err := writeFiles(dir); err != nil {
		b.Fatal(err)
	}
	b.Chdir(dir) // scheduler_perf finds templates from there
	shared := lifecycle.NewShared(clock.RealClock{})
	plugins := frameworkruntime.Registry{
		topology.Name: installed(topology.New(shared)), numa.Name: numa.New(shared), gang.Name: installed(gang.New(gang.NewProcess(shared))),
		fairsort.Name: fairsort.New(fairsort.NewTurns(clock.RealClock{})),
	}
	perf.RunBenchmarkPerfScheduling(b, "workloads.yaml", "nvtopo", plugins, perf.WithPrepareFn(publishGraphs))
}

// writeFiles writes the files that scheduler_perf reads to a folder.
func writeFiles(dir string) error {
	for _, name := range []string{"pod.yaml", "pod-gpu.yaml", "node-gpu.yaml"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	workloads, err := template.ParseFS(files, "workloads.yaml")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := workloads.Execute(&text, map[string]any{"Profiles": profiles}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "workloads.yaml"), text.Bytes(), 0o600); err != nil {
		return err
	}
	for _, profile := range profiles {
		config, err := configOf(profile)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, profile+".yaml"), config, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// configOf returns the shipped configuration, for pods that name no scheduler and without leader
// election, or in its place kube-scheduler's default profile with the same arguments of
// PodTopologySpread: with its default ones pods are not batched.
func configOf(profile string) ([]byte, error) {
	text, err := manifests.FS.ReadFile(manifests.SchedulerConfigBindingPath)
	if err != nil {
		return nil, err
	}
	var config struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Profiles   []map[string]any `json:"profiles"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	p := config.Profiles[0]
	p["schedulerName"] = v1.DefaultSchedulerName
	var kept []any
	for _, entry := range p["pluginConfig"].([]any) {
		of := entry.(map[string]any)
		args := of["args"].(map[string]any)
		delete(args, "leaderLease")
		delete(args, "debugAddress") // upstream's process serves its own
		if profile == ours || of["name"] == "PodTopologySpread" {
			kept = append(kept, entry)
		}
	}
	p["pluginConfig"] = kept
	if profile == stock {
		delete(p, "plugins")
	}
	return yaml.Marshal(config)
}

func TestAverage(t *testing.T) {
	tests := map[string]struct {
		file      string
		want      float64
		wantError string
	}{
		"the throughput is among other figures": {
			file: `{"dataItems": [{"labels": {"Metric": "latency"}, "data": {"Average": 3}}, {"labels": {"Metric": "SchedulingThroughput"}, "data": {"Average": 250.5}}]}`,
			want: 250.5,
		},
		"a workload that ended within two seconds": {file: `{"dataItems": [{"labels": {"Metric": "latency"}, "data": {"Average": 3}}]}`},
		"a file without figures":                   {file: `{"dataItems": []}`, wantError: "the results have no figures"},
		"a file that is no JSON":                   {file: `{`, wantError: "decode the results: unexpected end of JSON input"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := averageOf([]byte(tc.file))
			if got != tc.want || text(err) != tc.wantError {
				t.Errorf("got %v and error %v, want %v and %q", got, err, tc.want, tc.wantError)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestCommand runs pods with GPUs with both profiles, in processes of this program.
func TestCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	var stdout, progress bytes.Buffer
	if err := command(t.Context(), []string{"-short", "-cases", "SchedulingGPUs", "-program", self, "-etcd", testkit.Bin(), "-out", out}, &stdout, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if !bytes.Contains(stdout.Bytes(), []byte("| SchedulingGPUs/200Nodes")) {
		t.Errorf("the table lacks the workload:\n%s", stdout.String())
	}
	if _, err := os.Stat(filepath.Join(out, resultFile)); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	o, err := parse([]string{"-sizes", "500Nodes,1000Nodes", "-repeats", "5"}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"500Nodes", "1000Nodes"}, o.Sizes); diff != "" || o.Repeats != 5 {
		t.Errorf("%d repeats, want 5; sizes (-want +got):\n%s", o.Repeats, diff)
	}
}
