// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/nvtopo/nvtopo/manifests"
)

func nothing(string) string { return "" }

// TestShippedArguments: the shipped arguments are understood. It parses what the manifests start
// the agent with, the components' included.
func TestShippedArguments(t *testing.T) {
	data, err := manifests.FS.ReadFile("node-agent/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(data, &d); err != nil {
		t.Fatal(err)
	}
	args := d.Spec.Template.Spec.Containers[0].Args
	for _, component := range []string{"strict", "pinning"} {
		data, err := manifests.FS.ReadFile("components/" + component + "/kustomization.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if _, arg, ok := strings.Cut(strings.TrimSpace(line), "value: --"); ok {
				args = append(args, "--"+arg)
			}
		}
	}
	if len(args) != 3 {
		t.Errorf("%d arguments: %q, want 3", len(args), args)
	}
	if err := newCommand(nothing).ParseFlags(args); err != nil {
		t.Error(err)
	}
}

// TestFlagDocs: every flag is documented. docs/node-agent.md has a line for each flag.
func TestFlagDocs(t *testing.T) {
	docs, err := os.ReadFile(filepath.Join("..", "..", "docs", "node-agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	newCommand(nothing).LocalFlags().VisitAll(func(f *pflag.Flag) {
		count++
		name := "--" + f.Name
		if len(f.Name) == 1 {
			name = "-" + f.Name
		}
		if !strings.Contains(string(docs), "\n| `"+name+"` |") {
			t.Errorf("%s is not in docs/node-agent.md", name)
		}
	})
	if count < 10 {
		t.Errorf("only %d flags were looked at", count)
	}
}
