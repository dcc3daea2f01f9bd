// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// namesServer serves lists of metadata, and returns a kubeconfig whose context has the namespace team.
func namesServer(t *testing.T, names map[string][]string) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		all, ok := names[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
			return
		}
		var items []string
		for _, n := range all {
			items = append(items, fmt.Sprintf(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q}}`, n))
		}
		_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[%s]}`, strings.Join(items, ","))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}],
contexts: [{name: c, context: {cluster: c, namespace: team}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// suggestions are the shell's suggestions for a command line, without the directive.
func suggestions(t *testing.T, argv ...string) []string {
	t.Helper()
	cmd := New(argv[0])
	var out, errOut bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SetArgs(Arguments(argv))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("%v: %v", argv, err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	last := len(lines) - 1
	if last < 0 || !strings.HasPrefix(lines[last], ":") {
		t.Fatalf("%v: no directive in %q", argv, out.String())
	}
	for i := range lines {
		lines[i], _, _ = strings.Cut(lines[i], "\t") // the rest is its description
	}
	return lines[:last]
}

func TestCompletion(t *testing.T) {
	t.Setenv("KUBECONFIG", namesServer(t, map[string][]string{
		"/api/v1/nodes":                       {"gpu-2", "gpu-1", "cpu-1"},
		"/api/v1/namespaces":                  {"team", "tools", "vision"},
		"/api/v1/namespaces/team/pods":        {"trainer-0", "trainer-1", "web"},
		"/api/v1/namespaces/vision/pods":      {"resnet-x"},
		"/apis/batch/v1/namespaces/team/jobs": {"train"},
	}))
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"nodes":                 {[]string{"topology", "gpu"}, []string{"gpu-1", "gpu-2"}},
		"no second node":        {[]string{"topology", "gpu-1", ""}, []string{}},
		"the node of a machine": {[]string{"pick", "--node", "c"}, []string{"cpu-1"}},
		"pods of the context":   {[]string{"verify-node", "tr"}, []string{"trainer-0", "trainer-1"}},
		"pods of a namespace":   {[]string{"verify-node", "-n", "vision", ""}, []string{"resnet-x"}},
		"namespaces":            {[]string{"explain", "-n", "t"}, []string{"team", "tools"}},
		"pods and kinds": {[]string{"explain", ""}, []string{
			"trainer-0", "trainer-1", "web", "deployment/", "elasticjob/", "job/", "jobset/", "leaderworkerset/", "pod/", "podgroup/", "replicaset/", "statefulset/",
		}},
		"jobs":                      {[]string{"explain", "job/t"}, []string{"job/train"}},
		"pods by their kind":        {[]string{"explain", "po/w"}, []string{"po/web"}},
		"what is not installed":     {[]string{"explain", "podgroup/"}, []string{}},
		"a kind that nobody knows":  {[]string{"explain", "node/"}, []string{}},
		"machines of the catalogue": {[]string{"matrix", "--machine", "dgx1-"}, machine.Names()},
		"forms":                     {[]string{"top", "-o", ""}, []string{"table", "wide", "json", "yaml"}},
		"forms of one machine":      {[]string{"pick", "-o", ""}, []string{"text", "json", "yaml"}},
		"verbs":                     {[]string{"verify"}, []string{"verify-node"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, program := range [][]string{{"nvtopo", cobra.ShellCompRequestCmd}, {"/usr/local/bin/kubectl_complete-nvtopo"}} {
				got := suggestions(t, append(slices.Clone(program), tc.args...)...)
				if diff := cmp.Diff(tc.want, slices.DeleteFunc(got, func(s string) bool { return s == "" && len(tc.want) == 0 })); diff != "" {
					t.Errorf("%v (-want,+got)\n%s", program, diff)
				}
			}
		})
	}
}

func TestCompletionWithoutACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if got := suggestions(t, "kubectl_complete-nvtopo", "topology", ""); len(got) > 0 {
		t.Errorf("%q, want none", got)
	}
}

// commands are all commands that a user can call.
func commands(of *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{of}
	for _, c := range of.Commands() {
		if !c.Hidden && c.Name() != "help" && c.Name() != "completion" {
			all = append(all, commands(c)...)
		}
	}
	return all
}

// notLists are commands that print no list and no object of nvtopo's.
var notLists = map[string]string{
	"nvtopo":                            "help",
	"nvtopo export":                     "an object, in YAML or JSON by --format",
	"nvtopo fabric":                     "help",
	"nvtopo generate":                   "help",
	"nvtopo generate docker":            "a command line",
	"nvtopo generate kubelet-config":    "a file",
	"nvtopo generate nccl-topo":         "a file",
	"nvtopo generate pod":               "a file",
	"nvtopo generate scheduler-profile": "a file",
	"nvtopo get":                        "help",
	"nvtopo matrix":                     "the table of nvidia-smi",
	"nvtopo snapshot":                   "help",
	"nvtopo snapshot save":              "a file",
	"nvtopo ui":                         "pages",
	"nvtopo pool settle":                "a line",
	"nvtopo version":                    "a line",
}

// TestCommandHelp: every command has examples and forms.
func TestCommandHelp(t *testing.T) {
	idle := map[string]bool{}
	for path := range notLists {
		idle[path] = true
	}
	for _, c := range commands(New(programName)) {
		path := c.CommandPath()
		delete(idle, path)
		if c.Short == "" || c.Long == "" {
			t.Errorf("%s: no help", path)
		}
		if !strings.Contains(c.Example, "  "+path) {
			t.Errorf("%s: no example of it in its help: %q", path, c.Example)
		}
		for line := range strings.Lines(c.Example) {
			checkExample(t, path, strings.TrimSpace(line))
		}
		form := c.Flags().Lookup("output")
		_, none := notLists[path]
		switch {
		case none && form != nil && strings.HasPrefix(form.Usage, "form of the answer"):
			t.Errorf("%s has forms, and is said to print %s", path, notLists[path])
		case !none && form == nil:
			t.Errorf("%s has no flag -o", path)
		case !none && (form.Shorthand != "o" || !strings.Contains(form.Usage, "json") || !strings.Contains(form.Usage, "yaml")):
			t.Errorf("%s: -%s is %q, want -o with json and yaml", path, form.Shorthand, form.Usage)
		}
	}
	for path := range idle {
		t.Errorf("there is no command %s", path)
	}
}

// checkExample checks that the command of an example exists, with its flags.
func checkExample(t *testing.T, path, line string) {
	t.Helper()
	for part := range strings.SplitSeq(line, "|") {
		words := strings.Fields(part)
		if len(words) == 0 || words[0] != programName {
			continue
		}
		cmd, rest, err := New(programName).Find(words[1:])
		if err != nil {
			t.Errorf("%s: example %q: %v", path, line, err)
			continue
		}
		for _, word := range rest {
			if word == "--" {
				break // a command of others
			}
			name, _, _ := strings.Cut(word, "=")
			var flag *pflag.Flag
			switch {
			case strings.HasPrefix(name, "--"):
				flag = cmd.Flags().Lookup(name[2:])
			case len(name) == 2 && name[0] == '-':
				flag = cmd.Flags().ShorthandLookup(name[1:])
			default:
				continue
			}
			if flag == nil {
				t.Errorf("%s: example %q: %s has no flag %s", path, line, cmd.CommandPath(), name)
			}
		}
	}
}
