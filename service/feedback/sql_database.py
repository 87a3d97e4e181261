"""A database that SQLAlchemy knows by its URL.

Whoever writes takes the lock of the one row of `longtail_feedback_store` first, in however many
processes: so ids are looked up and taken without a race, and records become visible in the order
of their sequence, which pages rely on. Many entries share a transaction, so the lock costs little.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import sqlalchemy
from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, UnicodeText
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from models.files.urls import without_secrets
from service.errors import FeedbackStoreError
from service.feedback.dialects import Dialect, dialect_of, make_engine
from service.feedback.failures import codes_of, is_worth_a_retry, reason_in_words, told_by_driver
from service.feedback.records import Records
from service.feedback.sqlite import other_schema
