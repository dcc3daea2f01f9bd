// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Environment of torchrun, which reads its flags from there where the command has none.
// https://docs.pytorch.org/docs/stable/elastic/run.html
const (
	envNodes    = "PET_NNODES"
	envNodeRank = "PET_NODE_RANK"
)

const nodesFlag = "--nnodes"

// staticRendezvous returns why no replica can join the job once it runs; "" if any may. A command that
// names a rank, or one number of nodes, overrides the range in the environment. An additional replica
// would then wait for ever, or crash, with GPUs that others could use.
func staticRendezvous(ej *v1alpha1.ElasticJob) string {
	switch ej.Spec.Scaling.Rendezvous {
	case v1alpha1.RendezvousStatic:
		return "spec.scaling.rendezvous is static"
	case v1alpha1.RendezvousElastic:
		return ""
	case v1alpha1.RendezvousAuto, "":
	}
	for i := range ej.Spec.Template.Spec.Containers {
		c := &ej.Spec.Template.Spec.Containers[i]
		if why := staticCommand(c); why != "" {
			return fmt.Sprintf("container %s: %s", c.Name, why)
		}
	}
	return ""
}

func staticCommand(c *v1.Container) string {
	for i := range c.Env {
		switch e := &c.Env[i]; {
		case e.Name == envNodeRank:
			return envNodeRank + " is set"
		case e.Name == envNodes && (e.ValueFrom != nil || !isRange(e.Value)):
			return envNodes + " is no range"
		}
	}
	words := wordsOf(slices.Concat(c.Command, c.Args))
	for i, word := range words {
		name, value, joined := strings.Cut(word, "=")
		switch name {
		case "--node_rank", "--node-rank":
			return name + " is in the command"
		case nodesFlag:
			if !joined && i+1 < len(words) {
				value = words[i+1]
			}
			if !isRange(expand(value, c.Env)) {
				return nodesFlag + " in the command is no range"
			}
		}
	}
	return ""
}

// wordsOf splits a command as a shell would, closely enough to find flags: its parts may be whole
// scripts. Quotes are dropped, since only whether a value has a colon matters.
func wordsOf(command []string) []string {
	var words []string
	for _, part := range command {
		for word := range strings.FieldsSeq(part) {
			if word = strings.Trim(strings.NewReplacer(`"`, "", `'`, "").Replace(word), `\`); word != "" {
				words = append(words, word)
			}
		}
	}
	return words
}

// expand returns the value of a variable if value is nothing but a reference to it: $(NAME) of
// Kubernetes, $NAME or ${NAME} of a shell. A variable that the template does not set is known only if
// this package sets it.
func expand(value string, env []v1.EnvVar) string {
	name, ok := strings.CutPrefix(value, "$")
	if !ok {
		return value
	}
	name = strings.Trim(name, "(){};")
	for i := range env {
		if env[i].Name == name {
			return env[i].Value
		}
	}
	if name == envNodes {
		return "1:2" // any range
	}
	return value
}

// isRange reports whether a number of nodes is MIN:MAX, and not one number given twice.
func isRange(value string) bool {
	low, high, ok := strings.Cut(value, ":")
	if !ok {
		return false
	}
	least, err1 := strconv.Atoi(low)
	most, err2 := strconv.Atoi(high)
	return err1 != nil || err2 != nil || least < most
}
