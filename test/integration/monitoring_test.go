// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
)

// ourMetrics finds names of metrics of scheduler and exporter; those that rules record have a
// colon before or after.
var ourMetrics = regexp.MustCompile(`(?:^|[^:\w])((?:scheduler_nvtopo|nvtopo_exporter)_\w+)`)

// watchedMetrics are the metrics that alerts and dashboards name, by their prefix.
func watchedMetrics(t *testing.T, prefix string) []string {
	t.Helper()
	var found []string
	for _, files := range []fs.FS{manifests.Alerts, manifests.Dashboards} {
		err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(files, path)
			for _, m := range ourMetrics.FindAllStringSubmatch(string(text), -1) {
				if strings.HasPrefix(m[1], prefix) {
					found = append(found, m[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// TestWatchedMetrics: watched metrics are scraped. Everything of scheduler and exporter that alerts
// and dashboards name is in a scrape, once a pod and a gang with several GPUs each run and a kubelet
// has refused pods; and what the scheduler says of free groups is what top works out from the API
// server's objects.
func TestWatchedMetrics(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	s := l.startScheduler(t, profile{name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}})
	graph := l.node(t, "n1", "dgx1-v100")
	l.node(t, "n2", "hgx-a100-8")
	l.addNode(t, "n3", "dgx1-v100") // nothing publishes its graph
	// A kubelet that refuses pods has its node marked, which is a metric.
	for i := range 3 {
		name := fmt.Sprintf("refused-%d", i)
		l.create(t, gpuPod(name, gangProfile, 1).NodeSelector(host("n1")).Obj())
		l.bound(t, name)
		failed := []byte(`{"status":{"phase":"Failed","reason":"UnexpectedAdmissionError"}}`)
		_, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), name, types.MergePatchType, failed, metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
	}
	l.create(t, gpuPod("pair", gangProfile, 2).Obj())
	l.bound(t, "pair")
	members := gangPods(0, "couple", 2, 2, nil)
	for _, p := range members {
		p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n2"}
	}
	l.create(t, members...)
	for _, p := range members {
		l.bound(t, p.Name)
	}
	want := watchedMetrics(t, "scheduler_nvtopo")
	if len(want) < 12 {
		t.Errorf("alerts and dashboards name only %v", want)
	}
	var got samples
	testkit.Eventually(t, waitLimit, "everything watched is scraped", func(context.Context) (bool, string) {
		got = l.scrape(t, s)
		var missing []string
		for _, name := range want {
			if !got.has(name) {
				missing = append(missing, name)
			}
		}
		return len(missing) == 0, fmt.Sprint("nobody has ", missing)
	})
	l.agreesWithTop(t, got)
	for _, x := range got {
		if series, _, _ := strings.Cut(x.series, "{"); strings.HasPrefix(series, "scheduler_nvtopo_") {
			documented(t, series)
		}
	}

	dyn, err := dynamic.NewForConfig(l.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	e, err := exporter.New(exporter.Config{NodeName: "n1", Namespace: systemNamespace, AssumeEnforced: true}, exporter.Static(graph), l.client, dyn)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.PublishOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	families, err := e.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	scraped := map[string]bool{}
	for _, f := range families {
		scraped[f.GetName()] = true
		if strings.HasPrefix(f.GetName(), "nvtopo_") {
			documented(t, f.GetName())
		}
	}
	for _, name := range watchedMetrics(t, "nvtopo_exporter") {
		if !scraped[name] {
			t.Errorf("no exporter has the metric %s", name)
		}
	}
}

// documented fails unless the reference of metrics names one.
func documented(t *testing.T, series string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	name := series
	for _, ending := range []string{"_bucket", "_sum", "_count"} { // of a histogram
		name = strings.TrimSuffix(name, ending)
	}
	if !regexp.MustCompile("`" + name + "[`{]").Match(page) {
		t.Errorf("docs/monitoring.md does not say what %s is", name)
	}
}

// has reports whether there is a series of a name.
func (s samples) has(name string) bool {
	return slices.ContainsFunc(s, func(x sample) bool {
		series, _, _ := strings.Cut(x.series, "{")
		return series == name
	})
}

// agreesWithTop compares the gauges of groups and GPUs with the view that top shows.
func (e *testEnv) agreesWithTop(t *testing.T, got samples) {
	t.Helper()
	e.checkerAccount(t, "viewer", true)
	config, err := e.ServiceAccountConfig(t.Context(), systemNamespace, "viewer")
	if err != nil {
		t.Fatal(err)
	}
	v := &viewer{e, filepath.Join(t.TempDir(), "kubeconfig")}
	if err := devcluster.WriteKubeconfigOf(config, v.kubeconfig); err != nil {
		t.Fatal(err)
	}
	var top clusterview.View
	v.read(t, &top, "top")
	for _, slots := range top.Supply.Slots {
		for _, linked := range slots.Linked {
			labels := []string{fmt.Sprintf("gpus=%q", strconv.Itoa(slots.GPUs)), fmt.Sprintf("link_class=%q", linked.Class)}
			for state, want := range map[string]int{"free": linked.Free, "capacity": linked.Capacity} {
				if n := got.sum("scheduler_nvtopo_linked_groups", append(labels, fmt.Sprintf("state=%q", state))...); n != float64(want) {
					t.Errorf("%s groups %v: %v scraped, top says %d", state, labels, n, want)
				}
			}
		}
	}
	free := got.sum("scheduler_nvtopo_gpus", `state="free"`) + got.sum("scheduler_nvtopo_gpus", `state="stranded"`)
	if free != float64(top.Supply.FreeGPUs) || free == 0 {
		t.Errorf("%v GPUs free or stranded, top says %d", free, top.Supply.FreeGPUs)
	}
	if used := got.sum("scheduler_nvtopo_gpus", `state="used"`); used != float64(top.Supply.UsedGPUs) || used == 0 {
		t.Errorf("%v GPUs used, top says %d", used, top.Supply.UsedGPUs)
	}
}
