// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/placement/podkeys"
)

// maxAnswer bounds the size of a response.
const maxAnswer = 64 << 20

// asking is the command what-if with its flags.
type asking struct {
	clusterFlags
	schedulerAccess
	file, snapshot, program, namespace, output string
	asIs                                       bool
}

func newWhatIf() *cobra.Command {
	a := &asking{}
	cmd := &cobra.Command{
		Use:   "what-if -f FILE",
		Short: "Tell where pods would go and with which GPUs, without creating them",
		Long: `Tell what would become of Pods, Jobs, Deployments, StatefulSets and PodGroups if
they were created now: the node, the GPUs in ring order, NUMA nodes and rank; or
whom they would evict; or why they would wait. The scheduler itself answers, with
its own plugins and its own view, and changes nothing.

The scheduler that leads is found by what it publishes in nvtopo-system, and asked
through the API server; the rights are those of the Role nvtopo-what-if there. To
ask another one, --scheduler is the debugAddress of a process, once for each.

The API server first admits the pods in a dry run, so that defaults, priorities,
quotas and webhooks count; --as-is leaves that out: for a tenant's Job, whose pods
Kueue refuses or gates until it has quota. A Job stands for the pods that it would
run at first, a Deployment or a StatefulSet for its replicas.

Below the table it is said why each pod is on its node, which nodes come next, and why
the others take no part: in the words of explain, and on its scale of 100 points.

--snapshot asks by a file of "NVTOPO snapshot save" and no cluster. It runs
nvtopo-scheduler, which has to be in PATH or named by --program.

Where several nodes are equal to the scheduler, it draws lots: the answer then
names one of them, and says how many there are.

Exit codes: 0 all pods would be placed; 1 some would not; 2 wrong usage; 3 it could
not be asked.`,
		Example: `  NVTOPO what-if -f job.yaml
  NVTOPO what-if -f pod.yaml --snapshot cluster.jsonl -o yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&a.file, "file", "f", "", `file with Pods, Jobs, Deployments, StatefulSets and PodGroups in YAML or JSON; "-" is standard input`)
	f.StringVarP(&a.namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of objects that name none")
	f.StringVar(&a.snapshot, "snapshot", "", "file of \"snapshot save\" to ask by, instead of a scheduler")
	f.StringVar(&a.program, "program", "nvtopo-scheduler", "with --snapshot: the scheduler's program")
	f.BoolVar(&a.asIs, "as-is", false, "do not have the API server admit the pods in a dry run")
	bindForm(cmd, &a.output, plainForms[:]...)
	a.clusterFlags.bind(cmd)
	a.schedulerAccess.bind(cmd)
	return cmd
}

func (a *asking) validate() error {
	if err := checkForm(a.output, plainForms[:]...); err != nil {
		return err
	}
	switch {
	case a.file == "":
		return usagef("--file: what is asked for is missing")
	case a.snapshot != "" && len(a.schedulers) > 0:
		return usagef("want one of --scheduler and --snapshot, not both")
	}
	return a.check()
}

func (a *asking) run(cmd *cobra.Command) error {
	if err := a.validate(); err != nil {
		return err
	}
	data, err := readFile(cmd, a.file)
	if err != nil {
		return err
	}
	asked, err := whatif.ReadAsked(data, a.namespace)
	if err != nil {
		return inputf("%s: %w", shownName(a.file), err)
	}
	tellUnread(cmd, asked.Pods)
	var answer *whatif.Answer
	if a.snapshot != "" {
		answer, err = a.offline(cmd.Context(), data)
	} else {
		answer, err = a.live(cmd.Context(), asked)
	}
	if err != nil {
		return err
	}
	if err := a.print(cmd.OutOrStdout(), answer); err != nil {
		return err
	}
	if n := len(slices.DeleteFunc(slices.Clone(answer.Pods), func(p whatif.Pod) bool { return p.Outcome == whatif.Placed })); n > 0 {
		return noAnswerf("%d of %d pods would not be placed", n, len(answer.Pods))
	}
	return nil
}

// tellUnread prints the keys of the pods that look like nvtopo's and have no effect, grouping pods with
// the same ones.
func tellUnread(cmd *cobra.Command, pods []*v1.Pod) {
	var messages []string
	with := map[string][]string{} // message -> pods
	for _, p := range pods {
		message := podkeys.Message(podkeys.Unread(p))
		if message == "" {
			continue
		}
		if with[message] == nil {
			messages = append(messages, message)
		}
		with[message] = append(with[message], p.Namespace+"/"+p.Name)
	}
	for _, message := range messages {
		cmd.PrintErrf("%s: %s\n", printable(named(with[message])), printable(message))
	}
}

// offline runs the scheduler's program on a snapshot.
func (a *asking) offline(ctx context.Context, data []byte) (*whatif.Answer, error) {
	cmd := exec.CommandContext(ctx, a.program, "what-if", "--snapshot", a.snapshot, "--file", "/dev/stdin", "--namespace", a.namespace)
	cmd.Stdin = bytes.NewReader(data)
	var words bytes.Buffer
	cmd.Stderr = &words
	text, err := cmd.Output()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil, inputf("%s: %s", a.program, strings.TrimPrefix(strings.TrimSpace(words.String()), "nvtopo-scheduler: "))
	}
	if err != nil {
		return nil, inputf("--program %s: %w", a.program, err)
	}
	return decodeAnswer(text)
}

// live sends the request to the leading scheduler.
func (a *asking) live(ctx context.Context, asked *whatif.Asked) (*whatif.Answer, error) {
	config, err := a.config()
	if err != nil {
		return nil, inputf("kubeconfig: %w", err)
	}
	var gated []string
	if !a.asIs {
		kube, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, inputf("kubeconfig: %w", err)
		}
		if gated, err = admit(ctx, kube, asked); err != nil {
			return nil, err
		}
	}
	body, err := asked.Encode()
	if err != nil {
		return nil, err
	}
	var answer *whatif.Answer
	err = a.ask(ctx, config, whatif.Path, body, func(r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, maxAnswer))
		if err == nil {
			answer, err = decodeAnswer(text)
		}
		return err
	})
	if err == nil {
		tellGated(answer, gated)
	}
	return answer, err
}

// tellGated adds the next step to the message of pods that got a scheduling gate in the dry run.
func tellGated(answer *whatif.Answer, gated []string) {
	for i := range answer.Pods {
		if p := &answer.Pods[i]; slices.Contains(gated, p.Pod) {
			p.Message += "; the dry run added the gate: to ask as if it were taken away, add --as-is, which leaves out the dry run"
		}
	}
}

// admit has the API server admit the pods in a dry run, which creates nothing. It returns those that got a
// scheduling gate by it, as namespace/name.
func admit(ctx context.Context, kube kubernetes.Interface, asked *whatif.Asked) (gated []string, err error) {
	for i, pod := range asked.Pods {
		admitted, err := kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsAlreadyExists(err) {
			return nil, inputf("pod %s/%s is there already: ask for one of another name, or with --as-is, which leaves out the dry run", pod.Namespace, pod.Name)
		}
		if err != nil {
			return nil, inputf("pod %s/%s: the API server does not admit it: %w; to ask the scheduler all the same, add --as-is, which leaves out the dry run", pod.Namespace, pod.Name, err)
		}
		if len(pod.Spec.SchedulingGates) == 0 && len(admitted.Spec.SchedulingGates) > 0 {
			gated = append(gated, pod.Namespace+"/"+pod.Name)
		}
		admitted.Status = v1.PodStatus{}
		asked.Pods[i] = admitted
	}
	return gated, nil
}

func decodeAnswer(text []byte) (*whatif.Answer, error) {
	a := &whatif.Answer{}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, inputf("the answer: %w", err)
	}
	if a.Version != whatif.AnswerVersion {
		return nil, inputf("the answer has version %d, and this program reads %d", a.Version, whatif.AnswerVersion)
	}
	return a, nil
}

func (a *asking) print(out io.Writer, answer *whatif.Answer) error {
	switch a.output {
	case "json":
		return encodeJSON(out, "", answer)
	case "yaml":
		text, err := yaml.Marshal(answer)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = fmt.Fprintf(out, "---\n%s", text)
		return err
	}
	return printFates(out, answer)
}

// printFates writes the result for people.
func printFates(out io.Writer, answer *whatif.Answer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "POD\tOUTCOME\tNODE\tGPUS\tNUMA\tLINK\tRING GB/s\tRANK\tEQUAL NODES")
	for i := range answer.Pods {
		p := &answer.Pods[i]
		printf(w, "%s\n", safe(strings.Join(row(p), "\t")))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	var b bytes.Buffer
	whyText(&b, answer.Pods)
	for i := range answer.Pods {
		if p := &answer.Pods[i]; p.Message != "" {
			printf(&b, "\n%s: %s\n", p.Pod, p.Message)
		}
	}
	if len(answer.Victims) > 0 {
		printf(&b, "\nWould be evicted: %s\n", strings.Join(answer.Victims, ", "))
	}
	_, err := out.Write(b.Bytes())
	return err
}

// row is one pod's line; its cells are printable.
func row(p *whatif.Pod) []string {
	gpus := p.GPUIndices
	if gpus == "" {
		var ids []string
		for _, d := range p.Devices {
			ids = append(ids, d.IDs...)
		}
		gpus = strings.Join(ids, ",")
	}
	numa := make([]string, len(p.NUMANodes))
	for i, n := range p.NUMANodes {
		numa[i] = strconv.Itoa(n)
	}
	rank, equal := "", ""
	if p.Rank != nil {
		rank = strconv.Itoa(*p.Rank)
	}
	if n := p.Equal; n > 1 {
		equal = strconv.Itoa(n)
	}
	cells := []string{p.Pod, string(p.Outcome), p.Node, gpus, strings.Join(numa, ","), p.LinkClass, p.RingBandwidth, rank, equal}
	for i, cell := range cells {
		cells[i] = cmp.Or(printable(cell), "-")
	}
	return cells
}
