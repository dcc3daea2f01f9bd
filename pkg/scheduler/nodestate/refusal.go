// SPDX-License-Identifier: Apache-2.0

package nodestate

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// ProvesNoWrite reports whether an answer to the PATCH or the Binding of a pod proves that the
// API server wrote nothing and will not, if the request was sent once. These are all the
// codes that do, by the sources of Kubernetes 1.35.8 (paths under k8s.io/apiserver/pkg
// unless said otherwise):
//
//   - 400, 422: the body is decoded, and names, Binding and pod are validated, before the
//     transaction, or in the function whose result it would write
//     (storage/etcd3.GuaranteedUpdate).
//   - 403: authorization and admission come before, as does any code of a webhook.
//   - 404: the pod was not there when it was read for the transaction. A transaction that
//     met another version wrote nothing, and is tried on what it found.
//   - 429: flow control, or a server that is ending, before the request has a handler
//     (server/filters).
//
// What else may be made after the write, or while it goes on:
//
//   - 409: for a Binding every error of etcd without a code of its own, time-outs and
//     changes of its leader among them (assignPod in
//     k8s.io/kubernetes/pkg/registry/core/pod/storage), beside "already assigned".
//   - 500: the same errors for a PATCH (endpoints/handlers/responsewriters), and what is
//     stored but cannot be decoded.
//   - 504: the handler's deadline ended; the write goes on without it
//     (endpoints/handlers/finisher).
//   - 502, 503: the API server makes 503 before a write only, but who stands before it
//     makes both when a connection ends.
//
// Answers to the PATCH are heard in either mode. The Binding is ours in mode Binding only:
// in mode PreBind, which the shipped profile has, DefaultBinder sends it and hears the
// answer, and a choice whose Binding failed is in doubt whatever that was.
func ProvesNoWrite(err error) bool {
	return apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) ||
		apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err)
}
