// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func TestStaticRendezvous(t *testing.T) {
	tests := map[string]struct {
		command, args []string
		env           []v1.EnvVar
		rendezvous    v1alpha1.Rendezvous
		want          string // part of the reason; "" is elastic
	}{
		"no command":                              {},
		"torchrun without flags":                  {command: []string{"torchrun"}, args: []string{"train.py"}},
		"the flags of the requirement":            {command: []string{"torchrun"}, args: []string{"--nproc_per_node=8", "--nnodes=$(WORLD_SIZE)", "--node_rank=$(RANK)"}, want: "--nnodes"},
		"a rank with a dash":                      {args: []string{"--node-rank=$(RANK)"}, want: "--node-rank is in the command"},
		"a rank of its own word":                  {args: []string{"--node_rank", "3"}, want: "--node_rank is in the command"},
		"a number of nodes of its own word":       {args: []string{"--nnodes", "4", "train.py"}, want: "--nnodes in the command is no range"},
		"a range":                                 {args: []string{"--nnodes=4:16"}},
		"a range of its own word":                 {args: []string{"--nnodes", "4:16"}},
		"a range of one number":                   {args: []string{"--nnodes=4:4"}, want: "--nnodes"},
		"a range and a rank":                      {args: []string{"--nnodes=4:16", "--node_rank=0"}, want: "--node_rank"},
		"our range by Kubernetes":                 {args: []string{"--nnodes=$(PET_NNODES)"}},
		"our range by a shell":                    {command: []string{"bash", "-c", "torchrun --nnodes=${PET_NNODES} train.py"}},
		"a variable that nobody knows":            {command: []string{"sh", "-c", "torchrun --nnodes $NODES train.py"}, want: "--nnodes"},
		"a variable that is a range":              {args: []string{"--nnodes=$(NODES)"}, env: []v1.EnvVar{{Name: "NODES", Value: "2:8"}}},
		"a variable that is a number":             {args: []string{"--nnodes=$(NODES)"}, env: []v1.EnvVar{{Name: "NODES", Value: "2"}}, want: "--nnodes"},
		"two variables":                           {args: []string{"--nnodes=$MIN:$MAX"}},
		"flags in a script":                       {command: []string{"bash", "-ec", "cd /work\nexec torchrun \\\n  --nnodes=\"$WORLD_SIZE\" \\\n  --node_rank \"$RANK\" train.py"}, want: "--nnodes"},
		"a quoted range in a script":              {command: []string{"bash", "-c", "torchrun '--nnodes' \"4:16\" train.py"}},
		"a flag at the end without a value":       {args: []string{"--nnodes"}, want: "--nnodes"},
		"a flag that only begins alike":           {args: []string{"--nnodes_per_group=4", "--node_ranking=x"}},
		"the rank by torchrun's variable":         {env: []v1.EnvVar{{Name: "PET_NODE_RANK", Value: "0"}}, want: "PET_NODE_RANK"},
		"the number of nodes by its variable":     {env: []v1.EnvVar{{Name: "PET_NNODES", Value: "4"}}, want: "PET_NNODES"},
		"a range by its variable":                 {env: []v1.EnvVar{{Name: "PET_NNODES", Value: "4:16"}}},
		"the author says elastic":                 {args: []string{"--nnodes=4"}, rendezvous: v1alpha1.RendezvousElastic},
		"the author says static":                  {args: []string{"--nnodes=4:16"}, rendezvous: v1alpha1.RendezvousStatic, want: "spec.scaling.rendezvous"},
		"a module of Python with torchrun's flag": {command: []string{"python", "-m", "torch.distributed.run", "--nnodes=2"}, want: "--nnodes"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ej := newJob(func(ej *v1alpha1.ElasticJob) {
				ej.Spec.Scaling.Rendezvous = tc.rendezvous
				c := &ej.Spec.Template.Spec.Containers[0]
				c.Command, c.Args, c.Env = tc.command, tc.args, tc.env
			})
			got := staticRendezvous(ej)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestStaticRequirementJob: the requirement's own job passes explicit ranks, with which
// extras would wait for ever.
func TestStaticRequirementJob(t *testing.T) {
	text, err := manifests.FS.ReadFile("examples/pools/llm-training.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ej := &v1alpha1.ElasticJob{}
	if err := yaml.UnmarshalStrict(text, ej); err != nil {
		t.Fatal(err)
	}
	if got := staticRendezvous(ej); !strings.Contains(got, "container trainer: --nnodes") {
		t.Errorf("got %q, want that --nnodes of container trainer is no range", got)
	}
}

// FuzzStaticCommand: no command makes the detector fail, a rank is always found where a shell
// would find it, and quotes change nothing.
func FuzzStaticCommand(f *testing.F) {
	f.Add("torchrun --nnodes=4:16 train.py", "4:16")
	f.Add("bash -c \"torchrun --nnodes $N\"", "$(PET_NNODES)")
	f.Add("--nnodes", "")
	f.Add("'", "\\")
	f.Fuzz(func(t *testing.T, script, value string) {
		plain := &v1.Container{Args: []string{script}}
		staticCommand(plain)
		ranked := &v1.Container{Args: []string{script + " --node_rank=" + value}}
		if staticCommand(ranked) == "" {
			t.Errorf("%q is not static", ranked.Args)
		}
		quoted := &v1.Container{Args: []string{"--nnodes=" + value}}
		bare := staticCommand(quoted)
		quoted.Args[0] = `--nnodes="` + value + `"`
		if strings.ContainsAny(value, " \t\r\n\v\f") || strings.ContainsFunc(value, func(r rune) bool { return r > 127 }) {
			return // several words
		}
		if got := staticCommand(quoted); got != bare {
			t.Errorf("%q: %q with quotes, %q without", value, got, bare)
		}
	})
}
