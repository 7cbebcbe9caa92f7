package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// pair is a certificate and its key.
type pair struct{ certificate, key []byte }

// sign makes a certificate for these names that an authority signs, or, without one, the certificate itself.
func sign(names []string, by *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return pair{}, err
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(90 * 24 * time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	issuer, signer := template, any(key)
	if by == nil {
		template.KeyUsage |= x509.KeyUsageCertSign
	} else {
		authority, err := tls.X509KeyPair(by.certificate, by.key)
		if err != nil {
			return pair{}, err
		}
		if issuer, err = parse(by.certificate); err != nil {
			return pair{}, err
		}
		signer = authority.PrivateKey
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, issuer, &key.PublicKey, signer)
	if err != nil {
		return pair{}, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	return pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})}, err
}

func parse(certificate []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, errors.New("not a certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// hook is where this process answers.
type hook struct {
	url       string
	authority []byte
}

var answering hook

// serve answers over TLS until the process ends, with a certificate that an authority signed.
func serve(ctx context.Context, paths map[string]http.HandlerFunc) error {
	authority, err := sign([]string{"authority.example.com"}, nil)
	if err != nil {
		return err
	}
	signed, err := sign([]string{"localhost"}, &authority)
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(signed.certificate, signed.key)
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	for path, answer := range paths {
		routes.HandleFunc(path, answer)
	}
	server := &http.Server{Handler: routes, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	answering = hook{url: "https://" + listener.Addr().String(), authority: authority.certificate}
	return nil
}

func review(decide func(*admissionv1.AdmissionRequest, *corev1.ConfigMap) *admissionv1.AdmissionResponse) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		review, settings := admissionv1.AdmissionReview{}, corev1.ConfigMap{}
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(writer, "not a review", http.StatusBadRequest)
			return
		}
		if err := json.Unmarshal(review.Request.Object.Raw, &settings); err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		answer := admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: decide(review.Request, &settings)}
		answer.Response.UID = review.Request.UID
		_ = json.NewEncoder(writer).Encode(answer)
	}
}

// guard watches over the ConfigMaps of a namespace by webhooks that it serves itself: they get a label, and some are refused.
// Whether that is so it finds out by trying.
var guard = operator{
	kind: "Guard",
	begin: func(ctx context.Context, _ *kit) error {
		label := review(func(request *admissionv1.AdmissionRequest, settings *corev1.ConfigMap) *admissionv1.AdmissionResponse {
			patch := `[{"op":"add","path":"/metadata/labels","value":{"guarded":"yes"}}]`
			if settings.Labels != nil {
				patch = `[{"op":"add","path":"/metadata/labels/guarded","value":"yes"}]`
			}
			return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
		})
		refuse := review(func(_ *admissionv1.AdmissionRequest, settings *corev1.ConfigMap) *admissionv1.AdmissionResponse {
			for key, value := range settings.Data {
				if strings.Contains(value, "secret") {
					return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: key + " tells a secret", Code: http.StatusForbidden}}
				}
			}
			return &admissionv1.AdmissionResponse{Allowed: true}
		})
		return serve(ctx, map[string]http.HandlerFunc{"/label": label, "/refuse": refuse})
	},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		if err := k.register(ctx, wanted); err != nil {
			return outcome{}, err
		}
		trial := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: wanted.GetNamespace(), Name: "trial"}, Data: map[string]string{"note": "harmless"}}
		if err := k.Create(ctx, trial, client.DryRunAll); err != nil {
			return outcome{}, err
		}
		if trial.Labels["guarded"] != "yes" {
			return outcome{missing: "nothing is labelled yet", again: second}, nil
		}
		trial = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: wanted.GetNamespace(), Name: "trial"}, Data: map[string]string{"note": "a secret"}}
		err := k.Create(ctx, trial, client.DryRunAll)
		refused := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "note tells a secret")
		if wants, _, _ := unstructured.NestedBool(wanted.Object, "spec", "refuses"); wants != refused {
			return outcome{missing: fmt.Sprintf("a secret is answered with: %v", err), again: second}, nil
		}
		return outcome{fields: map[string]any{"refuses": refused}}, nil
	},
	finish: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (bool, error) {
		meta := metav1.ObjectMeta{Name: "guard-" + wanted.GetNamespace()}
		for _, object := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}} {
			if err := k.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
				return false, err
			}
		}
		return true, nil
	},
}

func (k *kit) register(ctx context.Context, wanted *unstructured.Unstructured) error {
	meta := metav1.ObjectMeta{Name: "guard-" + wanted.GetNamespace()}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}}
	here := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": wanted.GetNamespace()}}
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: ptr.To(answering.url + path), CABundle: answering.authority}
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}
	if _, err := controllerutil.CreateOrPatch(ctx, k.Client, mutating, func() error {
		mutating.Webhooks = []admissionregistrationv1.MutatingWebhook{{
			Name: "label.guard.hanse.test", ClientConfig: at("/label"), Rules: rules, NamespaceSelector: here, AdmissionReviewVersions: []string{"v1"},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: ptr.To(admissionregistrationv1.Equivalent), TimeoutSeconds: ptr.To[int32](5),
			ReinvocationPolicy: ptr.To(admissionregistrationv1.NeverReinvocationPolicy)}}
		mutating.Webhooks[0].Rules[0].Scope = ptr.To(admissionregistrationv1.AllScopes)
		return nil
	}); err != nil {
		return err
	}
	refuses, _, _ := unstructured.NestedBool(wanted.Object, "spec", "refuses")
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
	if !refuses {
		return client.IgnoreNotFound(k.Delete(ctx, validating))
	}
	_, err := controllerutil.CreateOrPatch(ctx, k.Client, validating, func() error {
		validating.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
			Name: "refuse.guard.hanse.test", ClientConfig: at("/refuse"), Rules: rules, NamespaceSelector: here, AdmissionReviewVersions: []string{"v1"},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: ptr.To(admissionregistrationv1.Equivalent), TimeoutSeconds: ptr.To[int32](5)}}
		return nil
	})
	return err
}

// converter serves two versions of its kind, and converts between them itself: `length` in v1 is `metres` in v2.
var converter = operator{
	kind: "Rope",
	owns: []client.Object{&corev1.ConfigMap{}},
	begin: func(ctx context.Context, k *kit) error {
		if err := serve(ctx, map[string]http.HandlerFunc{"/convert": convert}); err != nil {
			return err
		}
		// The cache does not run yet.
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := k.direct.Get(ctx, types.NamespacedName{Name: "ropes." + group.Group}, definition); err != nil {
			return err
		}
		before := definition.DeepCopy()
		definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"},
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: ptr.To(answering.url + "/convert"), CABundle: answering.authority}}}
		return k.Patch(ctx, definition, client.MergeFrom(before))
	},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		newer := &unstructured.Unstructured{}
		newer.SetAPIVersion(group.Group + "/v2")
		newer.SetKind("Rope")
		if err := k.direct.Get(ctx, client.ObjectKeyFromObject(wanted), newer); err != nil {
			return outcome{}, err
		}
		length, metres := number(wanted, "spec", "length"), number(newer, "spec", "metres")
		if length != metres {
			return outcome{missing: fmt.Sprintf("%d is not %d", length, metres), again: second}, nil
		}
		measure := &corev1.ConfigMap{ObjectMeta: k.meta(wanted, "")}
		err := k.ensure(ctx, wanted, measure, func() { measure.Data = map[string]string{"metres": fmt.Sprint(metres)} })
		return outcome{fields: map[string]any{"metres": int64(metres)}}, err
	},
}

func convert(writer http.ResponseWriter, request *http.Request) {
	review := apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(writer, "not a review", http.StatusBadRequest)
		return
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		rope := &unstructured.Unstructured{}
		if err := rope.UnmarshalJSON(raw.Raw); err != nil {
			response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			break
		}
		from, to := "length", "metres"
		if strings.HasSuffix(review.Request.DesiredAPIVersion, "/v1") {
			from, to = to, from
		}
		if length, there, _ := unstructured.NestedFieldNoCopy(rope.Object, "spec", from); there {
			unstructured.RemoveNestedField(rope.Object, "spec", from)
			_ = unstructured.SetNestedField(rope.Object, length, "spec", to)
		}
		rope.SetAPIVersion(review.Request.DesiredAPIVersion)
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: rope})
	}
	review.Request, review.Response = nil, response
	_ = json.NewEncoder(writer).Encode(review)
}
