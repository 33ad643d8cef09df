"""What an application of Django's keeps."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models


class Author(models.Model):
    name = models.TextField(unique=True)


class Book(models.Model):
    author = models.ForeignKey(Author, models.CASCADE, related_name="books")
    price = models.DecimalField(max_digits=12, decimal_places=2, null=True)
    key = models.UUIDField(default=uuid.uuid4)
    data = models.JSONField(null=True)
    tags = ArrayField(models.TextField(), null=True)
    cover = models.BinaryField(null=True)
    lent_for = models.DurationField(null=True)
    printed_at = models.DateTimeField(db_index=True, null=True)

    class Meta:
        constraints = [models.CheckConstraint(check=models.Q(price__gte=0), name="affordable")]
