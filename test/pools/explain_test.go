// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
)

// TestQuotaWaitExplanation checks that the command names the job that holds the quota another job waits
// for.
func TestQuotaWaitExplanation(t *testing.T) {
	t.Parallel()
	s := newNamedScenario(t, sharedEnv(t), "team", dgx(2)...)
	s.tenants(t, "a")
	s.yaml(t, oneQueue)
	s.job(t, "a", "first", work{pods: 2, gpus: 2})
	s.running(t, "a", "first", 2)
	s.job(t, "a", "second", work{pods: 2, gpus: 2})
	s.waits(t, "a", "second")

	first, err := s.workload(t.Context(), "a", "first")
	if err != nil {
		t.Fatal(err)
	}
	holder := fmt.Sprintf("Workload %s/%s of %s holds 4", first.Namespace, first.Name, s.name)
	s.waitFor(t, "the second job is explained by its quota", func(ctx context.Context) (bool, string) {
		e, err := s.explained(ctx, "a", "second")
		if err != nil {
			return false, err.Error()
		}
		said := strings.Join(append([]string{e.Reason}, e.Evidence...), "; ")
		return e.Cause == explain.NoQuota && strings.Contains(said, "insufficient") && strings.Contains(said, holder) && e.Next != "",
			fmt.Sprintf("%s: %s; want the holder %q", e.Cause, said, holder)
	})
	e, err := s.explained(t.Context(), "a", "first")
	if err != nil {
		t.Fatal(err)
	}
	if e.State != explain.Bound || e.Choice == nil || e.Choice.Decision == nil {
		t.Errorf("the first job runs and is explained as %+v", e)
	}
	shown := transcript.New("quota", "--kubeconfig", s.Kubeconfig())
	shown.Hide("(job-[a-z]+)-[0-9a-f]{5}", "$1-00000")
	shown.Say("Two jobs of 4 GPUs each, 16 GPUs that are otherwise free, and a quota of 4.")
	shown.Run(t, "explain", "-n", s.tenant("a"), "job/second")
	shown.Compare(t)
}

// explained returns the command's explanation of a job.
func (s *scenario) explained(ctx context.Context, tenant, job string) (*explain.Explanation, error) {
	var out strings.Builder
	cmd := cli.New("nvtopo")
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"explain", "job/" + job, "-n", s.tenant(tenant), "-o", "json", "--kubeconfig", s.Kubeconfig()})
	if err := cmd.ExecuteContext(ctx); err != nil {
		return nil, err
	}
	e := &explain.Explanation{}
	return e, json.Unmarshal([]byte(out.String()), e)
}
