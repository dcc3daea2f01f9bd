// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"bytes"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nvtopo/nvtopo/"

// layers lists all packages of the module, the highest layer first. A package imports its own layer and
// those below. "x/..." is x and all packages below it.
var layers = [][]string{
	{"test/...", "docs", "internal/architecture"},
	{"cmd/..."},
	{"internal/transcript"},
	{"internal/lab/devcluster/..."},
	{"pkg/cli", "pkg/scheduler/debug", "pkg/scheduler/whatif/engine", "pkg/scheduler/schedulerconfig"},
	{"pkg/webui"},
	{"pkg/webui/documents"},
	{"pkg/webui/clusterwatch"},
	{"pkg/node/nodeverify"},
	{"pkg/plugins/..."},
	{"pkg/scheduler/lifecycle"},
	{"pkg/scheduler/whatif/memoryapi"},
	{"pkg/inspect/whatif"},
	{"pkg/scheduler/gangstate"},
	{"pkg/cli/uninstall"},
	{"pkg/node/nodeagent/...", "pkg/node/exporter", "pkg/node/deviceplugin/...", "pkg/scheduler/controller", "pkg/inspect/check", "pkg/inspect/clusterview/...", "pkg/inspect/explain", "pkg/cli/generate", "pkg/cli/leaderclient", "internal/lab/sim"},
	{"pkg/pools/metering", "pkg/pools/elasticjob", "pkg/pools/remotesession/..."},
	{"pkg/pools/computepool", "pkg/pools/placementcheck", "pkg/pools/virtualization", "pkg/pools/invoicing"},
	{"pkg/pools/ledger"},
	{"pkg/pools/accounting"},
	{"pkg/pools/names", "pkg/pools/units", "pkg/pools/membership", "pkg/pools/refusal", "pkg/pools/serverclock"},
	{"pkg/scheduler/nodestate"},
	{"pkg/scheduler/nodestate/waking"},
	{"pkg/scheduler/nodestate/candidates", "pkg/scheduler/nodestate/cordons", "pkg/scheduler/nodestate/fabricview", "pkg/scheduler/nodestate/leader", "pkg/scheduler/nodestate/reservations", "pkg/scheduler/nodestate/topologies"},
	{"pkg/placement/eviction", "pkg/placement/refusals"},
	{"pkg/placement"},
	{"pkg/placement/usage"},
	{"pkg/placement/allocation", "pkg/placement/podrequest", "pkg/placement/gangrequest", "pkg/placement/podkeys", "pkg/placement/diagnosis", "pkg/placement/clustertopology", "pkg/node/nodelease", "pkg/apis/topology/graphclient", "pkg/inspect/clusterobjects"},
	{"pkg/apis/..."},
	{"internal/daemon", "internal/fieldpath", "internal/release", "internal/contract", "internal/fixtures", "internal/rights", "internal/schedtest", "internal/testkit", "internal/testobj", "internal/testparts", "manifests", "ui"},
	{"pkg/pools/quota", "pkg/pools/billing"},
	{"pkg/nvtopo/...", "pkg/node/openmp", "internal/lab/sim/judge"},
}

// scheduler lists the packages that only the scheduler may link.
var scheduler = []string{"pkg/scheduler/...", "pkg/plugins/...", "k8s.io/kubernetes/pkg/scheduler/...", "k8s.io/kube-scheduler/framework/..."}

// never lists packages that certain programs must not link, directly or through other packages.
var never = []struct {
	who, what, except []string
	why               string
}{
	{
		who: []string{
			"cmd/node-agent", "cmd/exporter", "cmd/nvtopo", "cmd/pool-controller", "pkg/node/...", "pkg/inspect/...", "pkg/cli/...", "pkg/webui/...", "pkg/pools/...",
			"pkg/placement/...", "pkg/apis/topology/...", "pkg/apis/pool/...", "pkg/apis/kueue/...", "internal/lab/sim", "internal/daemon", "internal/fieldpath", "internal/release",
		},
		what: scheduler, why: "what runs on nodes, reads a cluster, or is shared by several programs does not link the scheduler",
	},
	{
		who: []string{"pkg/scheduler/whatif/memoryapi"}, what: []string{"pkg/scheduler/nodestate/...", "pkg/plugins/...", "k8s.io/kubernetes/pkg/scheduler/...", "k8s.io/kube-scheduler/framework/..."},
		why: "the API server in memory knows no scheduler of ours",
	},
	{
		who:  []string{"pkg/scheduler/nodestate/topologies"},
		what: []string{"pkg/scheduler/nodestate", "k8s.io/kubernetes/pkg/scheduler/...", "k8s.io/kube-scheduler/framework/..."},
		why:  "the cache of topologies says what changed by return values, and knows no pods",
	},
	{
		who:  []string{"pkg/node/nodeagent/steering/question", "pkg/node/nodeagent/steering/podfinder", "pkg/node/nodeagent/steering/answer"},
		what: []string{"pkg/node/nodeagent/kubelet/...", "pkg/node/nodeagent/interposer/...", "k8s.io/client-go/..."},
		why:  "finding the pod and choosing the devices are pure functions",
	},
	{
		who:  []string{"pkg/scheduler/nodestate/reservations"},
		what: []string{"pkg/scheduler/nodestate", "k8s.io/kubernetes/pkg/scheduler/...", "k8s.io/kube-scheduler/framework/..."},
		why:  "the table of reservations says what changed by return values, and knows no scheduler",
	},
	{
		who:  []string{"pkg/scheduler/nodestate/cordons"},
		what: []string{"pkg/scheduler/nodestate", "pkg/scheduler/nodestate/leader", "k8s.io/kubernetes/pkg/scheduler/...", "k8s.io/kube-scheduler/framework/..."},
		why:  "the table of cordons knows no scheduler",
	},
	{
		who:  []string{"pkg/scheduler/nodestate/waking"},
		what: []string{"pkg/scheduler/nodestate", "pkg/scheduler/nodestate/topologies", "pkg/scheduler/nodestate/reservations", "pkg/scheduler/nodestate/leader"},
		why:  "the waking of pods asks about nodes and pods over its own interfaces",
	},
	{
		who:  []string{"pkg/scheduler/nodestate/leader"},
		what: []string{"pkg/scheduler/nodestate", "pkg/scheduler/nodestate/reservations", "k8s.io/kubernetes/pkg/scheduler/...", "k8s.io/kube-scheduler/framework/..."},
		why:  "whether a choice may be carried out is a question of the Lease and of the API server",
	},
	{
		who: []string{"pkg/nvtopo/..."}, what: []string{"k8s.io/..."}, except: []string{"k8s.io/utils/clock"},
		why: "the library and its sources know nothing of Kubernetes",
	},
	{
		who: []string{"pkg/pools/quota"}, what: []string{"k8s.io/...", "sigs.k8s.io/..."},
		why: "quota is arithmetic, which knows nothing of Kubernetes or Kueue",
	},
	{
		who: []string{"internal/lab/sim/judge"}, what: []string{"pkg/nvtopo/...", "pkg/placement"}, except: []string{"pkg/nvtopo"},
		why: "the judge of placements shares no code with what chooses them",
	},
	{
		who: []string{"pkg/plugins/topology"}, what: []string{"pkg/plugins/numa", "pkg/plugins/gang"}, why: "plugins never import each other",
	},
	{
		who: []string{"pkg/plugins/numa"}, what: []string{"pkg/plugins/topology", "pkg/plugins/gang"}, why: "plugins never import each other",
	},
	{
		who: []string{"pkg/plugins/gang"}, what: []string{"pkg/plugins/topology", "pkg/plugins/numa"}, why: "plugins never import each other",
	},
	{
		who: []string{"pkg/plugins/fairsort"}, what: []string{"pkg/scheduler/nodestate/...", "pkg/scheduler/lifecycle"}, why: "the order of pods says nothing of nodes",
	},
	{
		who:  []string{"cmd/scheduler", "cmd/node-agent", "cmd/exporter", "cmd/nvtopo"},
		what: []string{"sigs.k8s.io/controller-runtime/pkg/manager"}, why: "only the pool controller links the machinery of controllers",
	},
	{
		who:  []string{"cmd/scheduler", "cmd/node-agent", "cmd/exporter", "cmd/nvtopo", "cmd/pool-controller"},
		what: []string{"internal/lab/devcluster/...", "k8s.io/kubernetes/cmd/kube-apiserver/..."}, why: "only the devcluster and tests link the API server",
	},
}

func TestArchitecture(t *testing.T) {
	imports := listImports(t)
	t.Run("imports go down the layers", func(t *testing.T) { goDown(t, imports) })
	t.Run("what is not linked", func(t *testing.T) { notLinked(t, imports) })
	t.Run("the library and billing have the standard library only", func(t *testing.T) { standardOnly(t, imports) })
	t.Run("every rule concerns something", func(t *testing.T) { noIdleRules(t, imports) })
}

func goDown(t *testing.T, imports map[string][]string) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(imports)) {
		if !strings.HasPrefix(p, module) {
			continue
		}
		from := layerOf(p)
		if from < 0 {
			t.Errorf("%s is in no layer of this table", short(p))
			continue
		}
		for _, q := range imports[p] {
			if strings.HasPrefix(q, module) && layerOf(q) >= 0 && layerOf(q) < from {
				t.Errorf("%s imports %s, which is in a layer above it", short(p), short(q))
			}
		}
	}
}

func notLinked(t *testing.T, imports map[string][]string) {
	t.Helper()
	for _, rule := range never {
		for _, p := range slices.Sorted(maps.Keys(imports)) {
			if !matches(p, rule.who) {
				continue
			}
			if way := wayTo(imports, p, rule.what, rule.except); way != nil {
				t.Errorf("%s: %s", rule.why, strings.Join(way, " → "))
			}
		}
	}
}

// standardOnly fails if a package restricted to the standard library imports another package; no path of
// the standard library begins with a domain. The planner of gangs may also import the library.
func standardOnly(t *testing.T, imports map[string][]string) {
	t.Helper()
	for _, p := range []string{"pkg/nvtopo", "pkg/nvtopo/fabric", "pkg/pools/billing"} {
		for _, q := range imports[module+p] {
			own := p == "pkg/nvtopo/fabric" && strings.HasPrefix(q, module)
			if first, _, _ := strings.Cut(q, "/"); strings.Contains(first, ".") && !own {
				t.Errorf("%s imports %s", p, q)
			}
		}
	}
}

// noIdleRules fails for a pattern that matches no package, such as one of a renamed package.
func noIdleRules(t *testing.T, imports map[string][]string) {
	t.Helper()
	check := func(pattern string) {
		for p := range imports {
			if matches(p, []string{pattern}) {
				return
			}
		}
		t.Errorf("there is no package %s", pattern)
	}
	for _, layer := range layers {
		for _, pattern := range layer {
			check(pattern)
		}
	}
	for _, rule := range never {
		for _, pattern := range slices.Concat(rule.who, rule.what, rule.except) {
			check(pattern)
		}
	}
}

// listImports returns the imports of each package that the module has or links, without those of tests.
func listImports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		imports[fields[0]] = fields[1:]
	}
	return imports
}

// layerOf returns the number of a package's layer, -1 if it has none.
func layerOf(p string) int {
	return slices.IndexFunc(layers, func(patterns []string) bool { return matches(p, patterns) })
}

func matches(p string, patterns []string) bool {
	p = short(p)
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		below, all := strings.CutSuffix(pattern, "/...")
		return p == below || all && strings.HasPrefix(p, below+"/")
	})
}

func short(p string) string { return strings.TrimPrefix(p, module) }

// wayTo returns the shortest chain of imports from p to a package that matches what and not except; nil
// if there is none.
func wayTo(imports map[string][]string, p string, what, except []string) []string {
	before := map[string]string{p: ""}
	for queue := []string{p}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != p && matches(at, what) && !matches(at, except) {
			var way []string
			for ; at != ""; at = before[at] {
				way = append(way, short(at))
			}
			slices.Reverse(way)
			return way
		}
		for _, q := range imports[at] {
			if _, seen := before[q]; !seen {
				before[q] = at
				queue = append(queue, q)
			}
		}
	}
	return nil
}
