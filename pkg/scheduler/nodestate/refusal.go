// SPDX-License-Identifier: Apache-2.0

package nodestate

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// ProvesNoWrite reports whether an answer to the PATCH or the Binding of a pod proves that the API server
// wrote nothing and will not, if the request was sent once. These are all the codes that do, according to
// the sources of Kubernetes 1.35.8 (paths under k8s.io/apiserver/pkg unless stated otherwise):
//
//   - 400, 422: the body is decoded, and names, Binding and pod are validated, before the
//     transaction, or in the function whose result it would write
//     (storage/etcd3.GuaranteedUpdate).
//   - 403: authorization and admission come before, as does any code of a webhook.
//   - 404: the pod did not exist when it was read for the transaction. A transaction that
//     met another version wrote nothing, and is retried on that version.
//   - 429: flow control, or a server that is ending, before the request has a handler
//     (server/filters).
//
// Other codes may be returned after the write, or while it goes on:
//
//   - 409: for a Binding every error of etcd without a code of its own, time-outs and
//     changes of its leader among them (assignPod in
//     k8s.io/kubernetes/pkg/registry/core/pod/storage), beside "already assigned".
//   - 500: the same errors for a PATCH (endpoints/handlers/responsewriters), and an object
//     that is stored but cannot be decoded.
//   - 504: the handler's deadline ended; the write goes on without it
//     (endpoints/handlers/finisher).
//   - 502, 503: the API server returns 503 only before a write, but a proxy before it
//     returns both when a connection ends.
//
// The answer to the PATCH is received in either mode. The Binding is sent by this scheduler's plugin in
// mode Binding only: in mode PreBind, which the shipped profile has, DefaultBinder sends it and gets the
// answer, and the outcome of a failed Binding is unknown for any code.
func ProvesNoWrite(err error) bool {
	return apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) ||
		apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err)
}
