// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// GetPreferredAllocation returns the devices that Steering chooses.
func (r *resource) GetPreferredAllocation(ctx context.Context, req *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	watch := r.metrics.start(rpcPreferred, r.clk)
	defer watch.stop()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.budget)
	defer cancel()
	out := &pluginapi.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		q := Question{
			Resource: r.name, Size: int(c.GetAllocationSize()),
			Available: c.GetAvailableDeviceIDs(), MustInclude: c.GetMustIncludeDeviceIDs(),
		}
		if err := q.answerable(); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		ids, err := within(ctx, r.cfg.steering, func(ctx context.Context) ([]string, error) {
			return r.steering.Preferred(ctx, q, r.innerPreference(watch))
		})
		if err != nil {
			return nil, refusal(err)
		}
		if err := q.check(ids); err != nil {
			return nil, status.Errorf(codes.Internal, "choosing devices of %s gave %v", r.name, err)
		}
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// innerPreference returns a function that requests the inner plugin's preferred devices, or nil if the
// plugin has no preference.
func (r *resource) innerPreference(watch *stopwatch) func(context.Context, Question) ([]string, error) {
	r.mu.Lock()
	in := r.inner
	r.mu.Unlock()
	if in == nil || !in.options.GetGetPreferredAllocationAvailable() {
		return nil
	}
	return func(ctx context.Context, q Question) ([]string, error) {
		defer watch.inner()()
		timeout := r.cfg.InnerTimeout
		if deadline, ok := ctx.Deadline(); ok {
			timeout = min(timeout, time.Until(deadline)-afterInner)
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return in.preferred(ctx, q)
	}
}

// Allocate calls Steering first and then forwards the request unchanged.
func (r *resource) Allocate(ctx context.Context, req *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	watch := r.metrics.start(rpcAllocate, r.clk)
	defer watch.stop()
	own, cancel := context.WithTimeout(ctx, r.cfg.budget)
	defer cancel()
	for _, c := range req.GetContainerRequests() {
		ids := slices.Clone(c.GetDevicesIds())
		if _, err := within(own, r.cfg.steering, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, r.steering.Allocate(ctx, r.name, ids)
		}); err != nil {
			return nil, refusal(err)
		}
	}
	resp, err := callInner(ctx, own, r, watch, func(ctx context.Context, in *inner) (*pluginapi.AllocateResponse, error) {
		return in.client.Allocate(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	for _, c := range req.GetContainerRequests() {
		r.steering.Allocated(r.name, slices.Clone(c.GetDevicesIds()))
	}
	return resp, nil
}

// PreStartContainer calls Steering in strict mode, and the plugin if it requires the call.
func (r *resource) PreStartContainer(ctx context.Context, req *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	watch := r.metrics.start(rpcPreStart, r.clk)
	defer watch.stop()
	own, cancel := context.WithTimeout(ctx, r.cfg.budget)
	defer cancel()
	if r.cfg.PreStart {
		ids := slices.Clone(req.GetDevicesIds())
		if _, err := within(own, r.cfg.steering, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, r.steering.PreStart(ctx, r.name, ids)
		}); err != nil {
			return nil, refusal(err)
		}
	}
	r.mu.Lock()
	required := r.innerPreStart
	r.mu.Unlock()
	if !required {
		return &pluginapi.PreStartContainerResponse{}, nil
	}
	return callInner(ctx, own, r, watch, func(ctx context.Context, in *inner) (*pluginapi.PreStartContainerResponse, error) {
		return in.client.PreStartContainer(ctx, req)
	})
}

// callInner calls the inner plugin. If the plugin is away, or its connection breaks during the call,
// callInner waits for it until own ends and calls again: kubelet never admits a rejected pod again, so a
// short wait saves the pod. Kubelet also repeats a call when it has lost a response.
func callInner[T any](ctx, own context.Context, r *resource, watch *stopwatch, call func(context.Context, *inner) (T, error)) (T, error) {
	var none T
	var last error
	var tried *inner
	for {
		in, err := r.await(own, watch, tried)
		if err != nil {
			if last != nil {
				return none, last
			}
			return none, status.Errorf(codes.Unavailable, "the device plugin of %s is not connected", r.name)
		}
		stop := watch.inner()
		resp, err := call(ctx, in)
		stop()
		if err == nil || !disconnected(ctx, err) {
			return resp, err
		}
		last, tried = err, in
	}
}

// disconnected reports whether a call failed because the plugin's connection broke, or because the agent
// closed it after its stream ended.
func disconnected(ctx context.Context, err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.Canceled && ctx.Err() == nil
}

// await returns the inner plugin as soon as one other than tried is attached. The wait is measured as the
// plugin's time, not the agent's.
func (r *resource) await(ctx context.Context, watch *stopwatch, tried *inner) (*inner, error) {
	stop := watch.inner()
	defer stop()
	for {
		r.mu.Lock()
		in, attached := r.inner, r.attached
		r.mu.Unlock()
		if in != nil && in != tried {
			return in, nil
		}
		select {
		case <-attached:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// within runs decide with the deadline budget. It returns when ctx ends, even if decide does not.
func within[T any](ctx context.Context, budget time.Duration, decide func(context.Context) (T, error)) (T, error) {
	soft, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := decide(soft)
		done <- result{value, err}
	}()
	select {
	case got := <-done:
		return got.value, got.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("no decision in time: %w", ctx.Err())
	}
}

// refusal converts err to the error that kubelet shows in the pod's status.
func refusal(err error) error {
	switch s, ok := status.FromError(err); {
	case ok:
		return s.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}
