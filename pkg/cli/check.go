// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// Exit codes of the command check.
const (
	ExitViolations = 1
	ExitUnchecked  = 2 // wrong usage, or something could not be read
)

// checkPause is the time after which pending findings are checked again.
const checkPause = 5 * time.Second

// checkTimeout bounds one request.
const checkTimeout = time.Minute

// checking is the command check with its flags.
type checking struct {
	from                []string // files and folders; a cluster if there are none
	kubeconfig, context string
	namespace           string
	schedulerAccess
	profiles        []string
	output          string
	grace, every    time.Duration
	scheduleTimeout time.Duration
	clock           clock.Clock
}

func newCheck() *cobra.Command {
	c := &checking{clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check a cluster: no GPU twice, every choice valid, kubelet and scheduler agree",
		Long: `Check whether a cluster keeps the scheduler's promises, and name every violation
with its objects and fields:
  - no GPU is in two live pods, neither by annotation nor by kubelet's record;
  - every bound GPU pod of the scheduler has a complete allocation that its node's
    graph, its policy and its demands on links allow;
  - kubelet's record is equal to the allocation;
  - with --scheduler: no claim is left without a pod that could use it, and all
    that the scheduler remembers follows from the pods.
The command changes nothing.

The cluster is read as of one moment. What a healthy cluster shows for a moment, for
example while an annotation is corrected, is pending. The command checks it again
until it is gone, or has lasted for --grace and is a violation. It does not wait for
findings that are new in the meantime. What was right when it was chosen and is
wrong now, because a link or a GPU failed, is a note.

--scheduler is the debugAddress of a scheduler process as https://host:port; give
it once for each process. The token of the kubeconfig, or that of --token-file, is
sent there, so its certificate must be trusted: --scheduler-ca.

--from reads files instead, or all .yaml, .yml and .json files of a folder: the
output of
  kubectl get pods,nodes,leases,nodegputopologies -A -o yaml --show-managed-fields
and what curl got from a scheduler's /debug/nvtopo/state. Pending findings cannot
be checked again then.

Exit codes: 0 no violation, whatever notes and pending findings there are;
1 violations; 2 wrong usage, or it could not be checked. -o changes none of them.`,
		Example: `  NVTOPO check
  NVTOPO check --scheduler https://10.0.0.7:10270 --scheduler-ca ca.crt -o json
  NVTOPO check --from cluster.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := c.run(cmd)
			var coded *codedError
			if err != nil && (!errors.As(err, &coded) || coded.code != ExitViolations) {
				return &codedError{ExitUnchecked, err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.from, "from", nil, "file or folder with the cluster's objects, instead of a cluster; may be repeated")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default: KUBECONFIG, then ~/.kube/config, then the pod's own account)")
	f.StringVar(&c.context, "context", "", "context of the kubeconfig")
	f.StringVar(&c.namespace, "namespace", release.Namespace, "namespace of the Leases of exporters and agents")
	c.bind(cmd)
	f.StringArrayVar(&c.profiles, "profile", nil, "schedulerName whose GPU pods must have an allocation (default: those that --scheduler names, or "+check.DefaultProfile+"); may be repeated")
	bindForm(cmd, &c.output, plainForms[:]...)
	f.DurationVar(&c.grace, "grace", check.DefaultGrace, "how long a finding may be pending; 0: do not wait")
	f.DurationVar(&c.scheduleTimeout, "schedule-timeout", gangrequest.DefaultScheduleTimeout, "how long a gang that was never whole may be partly bound: the scheduler's argument scheduleTimeout; 0: for ever")
	f.DurationVar(&c.every, "watch", 0, "check again this often until interrupted, and print each answer; 0: once")
	return cmd
}

func (c *checking) validate() error {
	if err := checkForm(c.output, plainForms[:]...); err != nil {
		return err
	}
	switch {
	case c.grace < 0 || c.every < 0 || c.scheduleTimeout < 0:
		return usagef("--grace, --watch and --schedule-timeout must not be negative")
	case len(c.from) > 0 && (c.kubeconfig != "" || c.context != "" || len(c.schedulers) > 0 || c.every > 0):
		return usagef("--from reads files only: --kubeconfig, --context, --scheduler and --watch cannot be used with it")
	}
	return c.check()
}

func (c *checking) run(cmd *cobra.Command) error {
	if err := c.validate(); err != nil {
		return err
	}
	if len(c.from) > 0 {
		o, err := readSaved(cmd, c.from, c.clock)
		if err != nil {
			return err
		}
		w := &check.World{Objects: *o}
		c.addSettings(w)
		return c.answer(cmd.OutOrStdout(), check.Examine(w))
	}
	read, err := c.reader(cmd)
	if err != nil {
		return err
	}
	checker := check.NewChecker(cmp.Or(c.grace, check.DefaultGrace))
	for {
		r, err := c.settle(cmd.Context(), checker, read)
		if err != nil {
			return err
		}
		err = c.answer(cmd.OutOrStdout(), r)
		if c.every == 0 || err != nil && ExitCode(err) != ExitViolations {
			return err
		}
		if !c.wait(cmd.Context(), c.every) {
			return err // the error of the last read
		}
	}
}

// settle examines the cluster until the findings that were pending at first are gone or have lasted too
// long. It does not wait for newer findings: in a busy cluster some finding is always pending, and there
// would never be a result.
func (c *checking) settle(ctx context.Context, checker *check.Checker, read func(context.Context) (*check.World, error)) (*check.Report, error) {
	var first time.Time
	for {
		w, err := read(ctx)
		if err != nil {
			return nil, err
		}
		if first.IsZero() {
			first = w.Now
		}
		r := checker.Examine(w)
		if c.grace == 0 || c.every > 0 || !checker.Awaits(first) || !c.wait(ctx, min(checkPause, c.grace)) {
			return r, nil
		}
	}
}

// wait reports whether the time passed before the command was interrupted.
func (c *checking) wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.clock.After(d):
		return true
	}
}

// reader connects to the cluster and its schedulers and returns a function that reads them.
func (c *checking) reader(cmd *cobra.Command) (func(context.Context) (*check.World, error), error) {
	flags := clusterFlags{kubeconfig: c.kubeconfig, context: c.context}
	config, err := flags.config()
	if err != nil {
		return nil, inputf("kubeconfig: %w", err)
	}
	config.Timeout = checkTimeout
	config.WarningHandler = rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, inputf("kubeconfig: %w", err)
	}
	var toSchedulers *http.Client
	if len(c.schedulers) > 0 {
		if toSchedulers, err = c.client(config, checkTimeout); err != nil {
			return nil, err
		}
	}
	told := "" // the last message about unreadable profiles: the cluster is read again and again
	return func(ctx context.Context) (*check.World, error) {
		w, err := check.Read(ctx, kube, c.namespace)
		if err != nil {
			return nil, inputf("cluster %s: %w", config.Host, err)
		}
		var unread error
		if w.Published, unread, err = publishedProfiles(ctx, kube, c.namespace); err != nil {
			return nil, err
		} else if unread != nil && unread.Error() != told {
			told = unread.Error()
			cmd.PrintErrf("namespace %s: %s; the scheduler's Lease is taken to be %s\n", c.namespace, printable(unread.Error()), diagnosis.ShippedLease)
		}
		for _, url := range c.schedulers {
			d, err := check.ReadScheduler(ctx, toSchedulers, url)
			if err != nil {
				return nil, inputf("%w", err)
			}
			w.Schedulers = append(w.Schedulers, *d)
		}
		c.addSettings(w)
		return w, nil
	}, nil
}

// addSettings adds the settings of the schedulers from the flags.
func (c *checking) addSettings(w *check.World) {
	w.ScheduleTimeout = &c.scheduleTimeout
	for _, name := range c.profiles {
		w.Profiles = append(w.Profiles, diagnosis.Profile{Name: name})
	}
}

// answer prints the report. If it has violations, the error has their number.
func (c *checking) answer(out io.Writer, r *check.Report) error {
	if err := c.print(out, r); err != nil {
		return err
	}
	if n := len(r.Violations); n > 0 {
		return &codedError{ExitViolations, fmt.Errorf("%d violations", n)}
	}
	return nil
}

func (c *checking) print(out io.Writer, r *check.Report) error {
	switch c.output {
	case "json":
		if err := encodeJSON(out, "", r); err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		return nil
	case "yaml":
		data, err := yaml.Marshal(r)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = fmt.Fprintf(out, "---\n%s", data)
		return err
	}
	var b strings.Builder
	for _, part := range []struct {
		title string
		all   []check.Violation
	}{{"VIOLATION", r.Violations}, {"PENDING", r.Pending}, {"NOTE", r.Notes}} {
		for _, v := range part.all {
			printf(&b, "%-9s  %s\n", part.title, v.Invariant)
			for _, o := range v.Objects {
				printf(&b, "  %s\n", o)
			}
			if v.Field != "" {
				printf(&b, "  field %s\n", v.Field)
			}
			printf(&b, "  %s\n", v.Message)
		}
	}
	n := r.Checked
	printf(&b, "%d violations, %d pending, %d notes\n", len(r.Violations), len(r.Pending), len(r.Notes))
	printf(&b, "Looked at %d live GPU pods (%d allocations compared with %d graphs, %d with kubelet's record, %d pods of others) and %d schedulers (%d claims)",
		n.Pods, n.Allocations, n.Nodes, n.Records, n.Foreign, n.Schedulers, n.Claims)
	if n.Gangs > 0 {
		printf(&b, " and %d gangs", n.Gangs)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(out, b.String())
	return err
}
