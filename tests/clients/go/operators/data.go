package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const second = time.Second

// once-run programs of a resource.
func (k *kit) job(ctx context.Context, wanted *unstructured.Unstructured, role string, command ...string) (*batchv1.Job, error) {
	job := &batchv1.Job{ObjectMeta: k.meta(wanted, role)}
	job.Spec.Template = template(job.Labels, "example.com/tools:1")
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.Template.Spec.Containers[0].Command = command
	return job, k.once(ctx, wanted, job)
}

// database keeps a StatefulSet with claims, a password, a backup every night, and makes a last backup before it goes.
var database = operator{
	kind: "Database",
	owns: []client.Object{&appsv1.StatefulSet{}, &corev1.Service{}, &corev1.Secret{}, &batchv1.CronJob{}, &batchv1.Job{}},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		secret := &corev1.Secret{ObjectMeta: k.meta(wanted, "login"), StringData: map[string]string{"user": "admin", "password": rand.Text()}}
		if err := k.once(ctx, wanted, secret); err != nil {
			return outcome{}, err
		}
		peers := &corev1.Service{ObjectMeta: k.meta(wanted, "peers")}
		peers.Spec = corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: k.labels(wanted, "peers"), PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{{Name: "peer", Port: 5432}}}
		if err := k.once(ctx, wanted, peers); err != nil {
			return outcome{}, err
		}
		set, err := k.keepStatefulSet(ctx, wanted, secret.Name)
		if err != nil {
			return outcome{}, err
		}
		backup := &batchv1.CronJob{ObjectMeta: k.meta(wanted, "backup")}
		if err := k.ensure(ctx, wanted, backup, func() {
			backup.Spec.Schedule = text(wanted, "spec", "backup")
			if backup.CreationTimestamp.IsZero() {
				backup.Spec.JobTemplate.Spec.Template = template(backup.Labels, "example.com/tools:1")
				backup.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			}
		}); err != nil {
			return outcome{}, err
		}
		ready := set.Status.ReadyReplicas
		fields := map[string]any{"ready": int64(ready), "phase": "Creating"}
		if set.Status.ObservedGeneration != set.Generation || ready != *set.Spec.Replicas || set.Status.UpdatedReplicas != *set.Spec.Replicas {
			return outcome{missing: fmt.Sprintf("%d are ready", ready), fields: fields}, nil
		}
		fields["phase"], fields["primary"] = "Running", set.Name+"-0"
		return outcome{fields: fields}, nil
	},
	finish: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (bool, error) {
		job, err := k.job(ctx, wanted, "last-backup", "dump")
		return job.Status.Succeeded > 0, err
	},
}

func (k *kit) keepStatefulSet(ctx context.Context, wanted *unstructured.Unstructured, secret string) (*appsv1.StatefulSet, error) {
	set := &appsv1.StatefulSet{ObjectMeta: k.meta(wanted, "peers")}
	replicas, labels := number(wanted, "spec", "replicas"), k.labels(wanted, "peers")
	return set, k.ensure(ctx, wanted, set, func() {
		set.Spec.Replicas = &replicas
		if !set.CreationTimestamp.IsZero() {
			return
		}
		set.Spec.ServiceName, set.Spec.Selector = set.Name, &metav1.LabelSelector{MatchLabels: labels}
		set.Spec.Template = template(labels, "example.com/database:16")
		main := &set.Spec.Template.Spec.Containers[0]
		main.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}
		main.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}}
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType}
	})
}

// workflow runs steps one after the other, each as a Job.
var workflow = operator{
	kind: "Workflow",
	owns: []client.Object{&batchv1.Job{}},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		steps, _, _ := unstructured.NestedStringSlice(wanted.Object, "spec", "steps")
		told, missing := map[string]any{}, ""
		for _, step := range steps {
			if missing != "" {
				told[step] = "Waiting"
				continue
			}
			job, err := k.job(ctx, wanted, step, "run", step)
			if err != nil {
				return outcome{}, err
			}
			told[step] = "Succeeded"
			if job.Status.Succeeded == 0 {
				told[step], missing = "Running", step+" runs"
			}
		}
		return outcome{missing: missing, fields: map[string]any{"steps": told}}, nil
	},
}

// ticker starts a Job every so often, so many times, and keeps only the last ones.
var ticker = operator{
	kind: "Ticker",
	owns: []client.Object{&batchv1.Job{}},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		started, times := number(wanted, "status", "started"), number(wanted, "spec", "times")
		pause := time.Duration(number(wanted, "spec", "seconds")) * second
		last, _ := time.Parse(time.RFC3339, text(wanted, "status", "last"))
		fields := map[string]any{"started": int64(started), "last": text(wanted, "status", "last")}
		if wait := pause - time.Since(last); started < times && wait > 0 {
			return outcome{missing: "more are to come", fields: fields, again: wait}, nil
		}
		if started < times {
			if _, err := k.job(ctx, wanted, fmt.Sprintf("%d", started+1), "tick"); err != nil {
				return outcome{}, err
			}
			fields["started"], fields["last"] = int64(started+1), time.Now().UTC().Format(time.RFC3339)
			return outcome{missing: "more are to come", fields: fields, again: pause}, nil
		}
		jobs := &batchv1.JobList{}
		if err := k.List(ctx, jobs, client.InNamespace(wanted.GetNamespace()), client.MatchingLabels{"app.kubernetes.io/instance": wanted.GetName()}); err != nil {
			return outcome{}, err
		}
		kept := 0
		for i := range jobs.Items {
			job := &jobs.Items[i]
			var number int32
			_, _ = fmt.Sscanf(job.Name, wanted.GetName()+"-%d", &number)
			switch {
			case job.Status.Succeeded == 0:
				return outcome{missing: job.Name + " runs", fields: fields}, nil
			case number <= times-2:
				if err := k.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
					return outcome{}, err
				}
			default:
				kept++
			}
		}
		fields["kept"] = int64(kept)
		return outcome{fields: fields}, nil
	},
}

// preview runs for a time, and then is no more than a status.
var preview = operator{
	kind: "Preview",
	owns: []client.Object{&appsv1.Deployment{}},
	keep: func(ctx context.Context, k *kit, wanted *unstructured.Unstructured) (outcome, error) {
		since, err := time.Parse(time.RFC3339, text(wanted, "status", "since"))
		fields := map[string]any{"since": text(wanted, "status", "since"), "phase": "Starting"}
		deployment := &appsv1.Deployment{ObjectMeta: k.meta(wanted, "")}
		left := time.Duration(number(wanted, "spec", "seconds"))*second - time.Since(since)
		if err == nil && left <= 0 {
			err := k.Delete(ctx, deployment, client.PropagationPolicy(metav1.DeletePropagationForeground))
			fields["phase"] = "Expired"
			if apierrors.IsNotFound(err) {
				return outcome{fields: fields}, nil
			}
			return outcome{missing: "it goes", fields: fields, again: second}, err
		}
		_, done, keepErr := k.deployment(ctx, wanted, "", text(wanted, "spec", "image"), 1)
		if keepErr != nil {
			return outcome{}, keepErr
		}
		if err != nil && done {
			// The time counts from when it is there.
			fields["since"], left = time.Now().UTC().Format(time.RFC3339), time.Duration(number(wanted, "spec", "seconds"))*second
		}
		if fields["since"] == "" {
			return outcome{missing: "it starts", fields: fields}, nil
		}
		fields["phase"] = "Running"
		return outcome{fields: fields, again: left}, nil
	},
}
