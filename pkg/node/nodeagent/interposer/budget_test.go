// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"
)

// decider is a Steering of which a test says how it decides.
type decider struct {
	Steering
	decide func(ctx context.Context, q Question, inner func(context.Context, Question) ([]string, error)) ([]string, error)
}

func (d decider) Preferred(ctx context.Context, q Question, inner func(context.Context, Question) ([]string, error)) ([]string, error) {
	return d.decide(ctx, q, inner)
}

func (d decider) Allocate(ctx context.Context, resource string, ids []string) error {
	_, err := d.decide(ctx, Question{Resource: resource, Available: ids}, nil)
	return err
}

// mute is a plugin that never answers.
type mute struct{ pluginapi.DevicePluginClient }

func (mute) GetPreferredAllocation(ctx context.Context, _ *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (mute) Allocate(ctx context.Context, _ *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// TestAnswerTime: answers keep within the time that is left. Kubelet's sync loop waits for an
// answer, so that it is bounded by what is left of a second, whoever does not answer.
func TestAnswerTime(t *testing.T) {
	type ask = func(context.Context, Question) ([]string, error)
	prefer := func(t *testing.T, r *resource) error {
		t.Helper()
		resp, err := r.GetPreferredAllocation(t.Context(), &pluginapi.PreferredAllocationRequest{
			ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{AvailableDeviceIDs: []string{"GPU-0", "GPU-1"}, AllocationSize: 1}},
		})
		if got := resp.GetContainerResponses(); err == nil && (len(got) != 1 || !slices.Equal(got[0].GetDeviceIDs(), []string{"GPU-1"})) {
			t.Errorf("the answer is %v, want GPU-1", got)
		}
		return err
	}
	allocate := func(t *testing.T, r *resource) error {
		t.Helper()
		_, err := r.Allocate(t.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: []string{"GPU-0"}}}})
		return err
	}
	tests := map[string]struct {
		decide   func(ctx context.Context, q Question, inner ask) ([]string, error) // nil: never
		away     bool                                                               // the plugin
		call     func(t *testing.T, r *resource) error
		wantCode codes.Code
		want     time.Duration
	}{
		"steering that keeps its deadline answers": {
			decide: func(ctx context.Context, _ Question, _ ask) ([]string, error) {
				<-ctx.Done()
				return []string{"GPU-1"}, nil
			},
			call: prefer, want: SteeringBudget,
		},
		"steering that never answers does not stop kubelet": {
			call: prefer, wantCode: codes.DeadlineExceeded, want: hardBudget,
		},
		"nor when kubelet allocates": {
			call: allocate, wantCode: codes.DeadlineExceeded, want: hardBudget,
		},
		"a plugin that does not answer leaves steering its time": {
			decide: func(ctx context.Context, q Question, inner ask) ([]string, error) {
				if _, err := inner(ctx, q); err == nil || ctx.Err() != nil {
					return nil, err
				}
				return []string{"GPU-1"}, nil
			},
			call: prefer, want: defaultInnerTimeout,
		},
		"so it does when steering asks late": {
			decide: func(ctx context.Context, q Question, inner ask) ([]string, error) {
				time.Sleep(SteeringBudget / 2)
				if _, err := inner(ctx, q); err == nil || ctx.Err() != nil {
					return nil, err
				}
				return []string{"GPU-1"}, nil
			},
			call: prefer, want: SteeringBudget - afterInner,
		},
		"a plugin that is away is not waited for any longer": {
			decide: func(context.Context, Question, ask) ([]string, error) { return nil, nil },
			away:   true, call: allocate, wantCode: codes.Unavailable, want: hardBudget,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, err := Config{PluginDir: "/d"}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			m, err := newMetrics(nil)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				if tc.decide == nil {
					end := make(chan struct{}) // a bubble wants all of its goroutines to end
					defer close(end)
					tc.decide = func(context.Context, Question, ask) ([]string, error) { <-end; return nil, nil }
				}
				r := &resource{
					name: "nvidia.com/gpu", cfg: cfg, clk: clock.RealClock{}, metrics: m, attached: make(chan struct{}),
					steering: decider{decide: tc.decide},
				}
				if !tc.away {
					r.inner = &inner{client: mute{}, options: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}}
				}
				start := time.Now()
				if err := tc.call(t, r); status.Code(err) != tc.wantCode {
					t.Errorf("error %v, want code %v", err, tc.wantCode)
				}
				if took := time.Since(start); took != tc.want {
					t.Errorf("the answer took %v, want %v", took, tc.want)
				}
			})
		})
	}
}
