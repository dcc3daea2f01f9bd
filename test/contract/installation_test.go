// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/internal/contract"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/cli"
)

// partsOfTheBase are folders whose objects manifests/base.txt has.
var partsOfTheBase = []string{"base", "core", "crd", "policy", "rbac", "flowcontrol", "network", "scheduler", "node-agent", "exporter"}

// TestManifests compares the kustomize builds of all folders that an operator may apply: the base with
// every field, the others by their differences from it.
func TestManifests(t *testing.T) {
	base := build(t, ".")
	contract.Compare(t, "manifests/base.txt", base.Text())
	folders := 0
	root := filepath.Join(testkit.Repository(), "manifests")
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		name := filepath.ToSlash(folder)
		switch {
		case strings.Contains(string(text), "\nkind: Component"), name == ".", slices.Contains(partsOfTheBase, name):
			return nil
		case name == "kueue": // it downloads Kueue: our part is the files beside
			return nil
		}
		folders++
		t.Run(name, func(t *testing.T) {
			built := build(t, name)
			text := built.Text()
			switch {
			case name == "overlays/pools":
				text = "# " + name + ", beside the base and pools\n" + built.TextAgainst(both(t, base, build(t, "pools")))
			case strings.HasPrefix(name, "overlays/"):
				text = "# " + name + ", beside the base\n" + built.TextAgainst(base)
			}
			contract.Compare(t, "manifests/"+strings.ReplaceAll(name, "/", "-")+".txt", text)
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if folders < 12 {
		t.Errorf("only %d folders were built", folders)
	}
}

// both returns the objects of two folders, which may share one: the namespace.
func both(t *testing.T, a, b contract.Objects) contract.Objects {
	t.Helper()
	out := maps.Clone(a)
	maps.Copy(out, b)
	if len(out) < len(a)+len(b)-1 {
		t.Errorf("%d and %d objects have %d names", len(a), len(b), len(out))
	}
	return out
}

func build(t *testing.T, folder string) contract.Objects {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(testkit.Repository(), "manifests", folder))
	if err != nil {
		t.Fatal(err)
	}
	out := contract.Objects{}
	for _, r := range built.Resources() {
		fields, err := r.Map() // its text has extra empty lines in folded text
		if err != nil {
			t.Fatal(err)
		}
		if err := out.Add(fields); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestKueueConfiguration compares the changes that manifests/kueue makes to Kueue's own manifests.
func TestKueueConfiguration(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testkit.Repository(), "manifests", "kueue", "component", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	files = append(files, filepath.Join(testkit.Repository(), "manifests", "kueue", "kustomization.yaml"))
	contract.Compare(t, "manifests/kueue.txt", yamls(t, files))
}

// TestChartValues compares the values of the chart and their schema.
func TestChartValues(t *testing.T) {
	chart := filepath.Join(testkit.Repository(), "charts", "nvtopo")
	contract.Compare(t, "chart-values.txt", yamls(t, []string{filepath.Join(chart, "values.yaml"), filepath.Join(chart, "values.schema.json")}))
}

func yamls(t *testing.T, files []string) string {
	t.Helper()
	var b strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		fmt.Fprintf(&b, "# %s\n%s\n", filepath.Base(file), strings.Join(contract.Fields(v), "\n"))
	}
	return b.String()
}

// TestCommands compares the commands of nvtopo, their flags, and exit codes.
func TestCommands(t *testing.T) {
	text := contract.Commands(cli.New("nvtopo"))
	text += fmt.Sprintf("\n# exit codes\n%d answered\n%d no answer\n%d wrong usage\n%d unreadable input\n%d violations (check)\n",
		cli.ExitOK, cli.ExitNoAnswer, cli.ExitUsage, cli.ExitInput, cli.ExitViolations)
	contract.Compare(t, "nvtopo.txt", text)
}
